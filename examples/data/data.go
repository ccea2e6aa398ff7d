// Package data has real input for the demo and the examples: the radio navigation aids of the world, 11,008 rows, from
// OurAirports (public domain).
package data

import _ "embed"

// Navaids is a CSV file with a header; the column id is unique.
//
//go:embed navaids.csv
var Navaids []byte
