//go:build !race

package chainmailtest_test

const raceEnabled = false
