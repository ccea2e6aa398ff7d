//go:build race

package chainmailtest_test

// raceEnabled: the race detector makes everything ten times slower.
const raceEnabled = true
