// Package api is the HTTP API of a member and its client: JSON in and out, errors as RFC 9457 problems with stable codes,
// events as server-sent events. Any member answers everything: what the leader has to decide is forwarded to it, and a
// call of an actor goes to the actor's owner.
//
// A problem's unknown_outcome says that the request may have taken effect; all others have not. The client tries the
// endpoints that it knows until one answers, and sends a call again only when it is certain that it was not run.
package api
