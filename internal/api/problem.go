package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"chainmail"
	"chainmail/actor"
	"chainmail/coordinator"
)

// Problem is an error as it travels: an object of RFC 9457 with this API's members.
type Problem struct {
	Type           string `json:"type"` // "urn:chainmail:problem:" and the code
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail"`
	Code           string `json:"code"`           // stable
	Hint           string `json:"hint,omitempty"` // what to do next
	Change         string `json:"change,omitempty"`
	Version        uint64 `json:"version,omitempty"` // of the placement that decided it
	UnknownOutcome bool   `json:"unknown_outcome,omitempty"`
	Forgotten      bool   `json:"forgotten,omitempty"` // the key does not remember the request id any more: sending it again tells nothing
	Silent         bool   `json:"-"`                   // made by the client: the member did not answer before the deadline
}

func (p *Problem) Error() string { return p.Detail }

// Is lets errors.Is find the class of a call's error on the client's side.
func (p *Problem) Is(target error) bool {
	c := chainmail.ErrorClass(p.Code)
	return c != nil && c == target
}

// codeInfo gives what goes with a code.
type codeInfo struct {
	status      int
	title, hint string
}

var codes = map[string]codeInfo{
	"bad-request":     {http.StatusBadRequest, "Request is not understood", "see cluster --help"},
	"not-found":       {http.StatusNotFound, "Key has no value", "cluster actors list TYPE"},
	"unknown-path":    {http.StatusNotFound, "No such path", "cluster version; cluster status"},
	"unknown-member":  {http.StatusNotFound, "No such member", "cluster members"},
	"unknown-change":  {http.StatusNotFound, "No such change", "cluster change list"},
	"stamp-mismatch":  {http.StatusConflict, "Value has another stamp", "read the value again"},
	"stale":           {http.StatusConflict, "Placement has another version", "cluster change plan"},
	"change-running":  {http.StatusConflict, "Another change is running", "cluster change watch"},
	"pinned":          {http.StatusConflict, "Pinned keys would be lost", "cluster change plan --remove MEMBER; --drop-pinned gives them up"},
	"key-reused":      {http.StatusConflict, "Idempotency key belongs to another change", "cluster change list"},
	"formed":          {http.StatusConflict, "Cluster is formed already", "cluster join ADDR"},
	"wrong-cluster":   {http.StatusConflict, "Another cluster", "cluster config show"},
	"invalid":         {http.StatusUnprocessableEntity, "Refused", "cluster members"},
	"rejected":        {http.StatusUnprocessableEntity, "Call is wrong", ""},
	"banned":          {http.StatusGone, "Incarnation was removed", "start the member with an empty data directory"},
	"last-member":     {http.StatusConflict, "Last member cannot leave", "stop the process"},
	"no-cluster":      {http.StatusConflict, "Part of no cluster", "cluster join ADDR, or stop the process"},
	"not-ready":       {http.StatusServiceUnavailable, "Not ready", "cluster status"},
	"no-leader":       {http.StatusServiceUnavailable, "No leader", "cluster members"},
	"handler-failed":  {http.StatusUnprocessableEntity, "Handler refused", ""},
	"unavailable":     {http.StatusServiceUnavailable, "Key is unavailable", "cluster actors show TYPE KEY"},
	"closed":          {http.StatusServiceUnavailable, "Member is stopping", "ask another member"},
	"overloaded":      {http.StatusTooManyRequests, "Too many messages wait", "try again later"},
	"unknown-outcome": {http.StatusGatewayTimeout, "Outcome is not known", "read the state before trying again"},
	"unauthorized":    {http.StatusUnauthorized, "No valid token", "give --token, or set CLUSTER_TOKEN"},
	"forbidden":       {http.StatusForbidden, "Token may only read", "use a token with the right operate"},
	"internal":        {http.StatusInternalServerError, "Error", "look at the member's log"},
}

func problem(code, format string, args ...any) *Problem {
	info := codes[code]
	return &Problem{Type: "urn:chainmail:problem:" + code, Title: info.title, Status: info.status, Code: code, Hint: info.hint,
		Detail: fmt.Sprintf(format, args...), UnknownOutcome: code == "unknown-outcome"}
}

// problemOf gives the problem of an error.
func problemOf(err error) *Problem {
	var p *Problem
	var call *chainmail.CallError
	var refused *coordinator.Refusal
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &call):
		p = problem(call.Code(), "%v", err)
		p.Version, p.Forgotten = call.Version, call.AppCode == actor.CodeUnknown
		p.Hint = strings.NewReplacer("TYPE", call.Type, "KEY", call.Key).Replace(p.Hint)
		return p
	case errors.As(err, &refused):
		p = problem(refused.Code.String(), "%v", err)
		p.Version, p.Change = refused.Version, refused.ID
		return p
	}
	for _, c := range []struct {
		err  error
		code string
	}{
		{chainmail.ErrLastMember, "last-member"}, {chainmail.ErrNoCluster, "no-cluster"}, {chainmail.ErrClosed, "closed"}, {chainmail.ErrRemoved, "banned"},
		{coordinator.ErrFormed, "formed"}, {coordinator.ErrWrongCluster, "wrong-cluster"}, {coordinator.ErrAddress, "invalid"}, {coordinator.ErrUnknownOutcome, "unknown-outcome"},
		{coordinator.ErrNoLeader, "no-leader"}, {coordinator.ErrNotLeader, "no-leader"}, {coordinator.ErrClosed, "closed"},
		{context.DeadlineExceeded, "no-leader"}, {context.Canceled, "closed"},
	} {
		if errors.Is(err, c.err) {
			return problem(c.code, "%v", err)
		}
	}
	return problem("internal", "%v", err)
}

func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if p.Status == 0 { // a code that this version gives no status
		p.Status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}
