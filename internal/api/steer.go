package api

import (
	"net/http"
	"strings"

	"chainmail/coordinator"
)

// steer pauses, resumes or aborts: POST /v1/changes/{id}:pause and so on, "running" for the running one.
func (s *Server) steer(w http.ResponseWriter, r *http.Request) error {
	id, what, _ := strings.Cut(r.PathValue("id"), ":")
	ref := id
	if ref == "running" {
		ref = ""
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	c := s.node.Coordinator()
	switch what {
	case "pause":
		err = c.Pause(ctx, ref)
	case "resume":
		err = c.Resume(ctx, ref)
	case "abort":
		err = c.Abort(ctx, ref)
	default:
		return problem("unknown-path", "a change can be paused, resumed and aborted: POST /v1/changes/%s:abort", id)
	}
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, struct{}{})
}

func (s *Server) planLoss(w http.ResponseWriter, r *http.Request) error {
	var q coordinator.LossRequest
	if err := body(r, &q); err != nil {
		return err
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	p, err := s.node.PlanLoss(ctx, q)
	if err != nil {
		return ofLoss(err)
	}
	return reply(w, http.StatusOK, p)
}

// declareLost wants to hear of which version: what is lost must have been looked at.
func (s *Server) declareLost(w http.ResponseWriter, r *http.Request) error {
	var q coordinator.LossRequest
	if err := body(r, &q); err != nil {
		return err
	}
	if q.ExpectVersion == 0 || q.Why == "" {
		return problem("bad-request", "a loss names its members, expect_version of the plan that was looked at, and why")
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	l, err := s.node.DeclareLost(ctx, q)
	if err != nil {
		return ofLoss(err)
	}
	return reply(w, http.StatusOK, l)
}

// ofLoss gives the problem of an error with what is to be looked at next: not a change.
func ofLoss(err error) error {
	p := problemOf(err)
	switch p.Code {
	case "stale":
		p.Hint = "cluster operator declare-lost ID... --plan"
	case "invalid":
		p.Hint = "cluster members --detailed"
	}
	return p
}
