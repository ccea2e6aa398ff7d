package api

import (
	"net/http"
	"strings"
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
