package chainmailtest

import "context"

// TB is what a Cluster and a History need of a test: a *testing.T, or the like of it.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Context() context.Context
	TempDir() string
	ArtifactDir() string
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}
