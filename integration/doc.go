// Package integration tries the production binary: members are processes (package process), what callers see is checked
// by package load.
package integration
