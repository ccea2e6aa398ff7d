// Package model has the rules for one key as a Promela model, key.pml, and the test that has spin search it: the spaces in
// which nothing may go wrong, and the variants of the rules in which something must. make model runs it. No program imports
// this package.
package model
