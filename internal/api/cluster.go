package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

// Status is one screen about the cluster, as the asked member sees it.
type Status struct {
	Member    string             `json:"member"`
	Program   string             `json:"program_version"`
	ClusterID string             `json:"cluster_id"`
	Version   uint64             `json:"version"`
	Stage     string             `json:"stage"`
	Leader    string             `json:"leader"`
	Ready     bool               `json:"ready"`
	Checks    []chainmail.Check  `json:"checks"`
	Members   int                `json:"members"`
	Up        int                `json:"up"`
	Refilling []string           `json:"refilling,omitempty"`
	Down      []string           `json:"down,omitempty"`
	Ring      []string           `json:"ring"` // members of the base ring
	Replicas  int                `json:"replicas"`
	Limits    membership.Limits  `json:"limits"`
	Running   *membership.Change `json:"running,omitempty"`
	Waiting   []string           `json:"waiting,omitempty"`
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Get("current") == "true" {
		if err := s.catchUp(r); err != nil {
			return err
		}
	}
	p := s.node.Coordinator().Placement()
	out := Status{Member: s.node.ID(), Program: s.opt.Version, ClusterID: p.ClusterID, Version: p.Version, Stage: p.Stage.String(),
		Leader: s.node.Coordinator().Status().LeaderID, Checks: s.node.Ready(r.Context()), Ready: true, Members: len(p.Members),
		Replicas: p.Replicas[""], Limits: p.Limits, Running: p.Running, Ring: []string{}}
	for _, c := range out.Checks {
		out.Ready = out.Ready && c.OK
	}
	for _, m := range p.Members {
		if m.Down {
			out.Down = append(out.Down, m.ID)
		} else {
			out.Up++
		}
		if m.Refilling {
			out.Refilling = append(out.Refilling, m.ID)
		}
	}
	for _, m := range p.Base {
		out.Ring = append(out.Ring, m.ID)
	}
	for _, x := range membership.Waiting(p) {
		out.Waiting = append(out.Waiting, x.String())
	}
	return reply(w, http.StatusOK, out)
}

// catchUp waits until this member knows what the leader knows now: one that has just been started may go by an old placement,
// in which nobody is down.
func (s *Server) catchUp(r *http.Request) error {
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	p, err := s.node.Coordinator().LeaderPlacement(ctx)
	if err != nil {
		return err
	}
	if p.Revision > 0 && s.node.Coordinator().Placement().Revision < p.Revision {
		s.await(ctx, p.Revision-1, maxWait)
	}
	if have := s.node.Coordinator().Placement().Revision; have < p.Revision {
		return problem("not-ready", "member %s has the log up to revision %d of %d", s.node.ID(), have, p.Revision)
	}
	return nil
}

func (s *Server) livez(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-s.node.Failed():
		return problem("internal", "member %s has failed: %v", s.node.ID(), s.node.Err())
	default:
	}
	_, err := fmt.Fprintln(w, "ok")
	return err
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	checks := s.node.Ready(r.Context())
	status := http.StatusOK
	text := ""
	for _, c := range checks {
		mark := "ok"
		if !c.OK {
			mark, status = c.Why, http.StatusServiceUnavailable
		}
		text += fmt.Sprintf("%-10s %s\n", c.Name, mark)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if r.URL.Query().Has("verbose") || status != http.StatusOK {
		_, err := fmt.Fprint(w, text)
		return err
	}
	_, err := fmt.Fprintln(w, "ok")
	return err
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	if s.opt.Metrics == nil {
		return problem("unknown-path", "telemetry.prometheus is off on member %s", s.node.ID())
	}
	s.opt.Metrics.ServeHTTP(w, r)
	return nil
}

func (s *Server) members(w http.ResponseWriter, r *http.Request) error {
	return reply(w, http.StatusOK, s.node.Members(r.Context()))
}

func (s *Server) placement(w http.ResponseWriter, r *http.Request) error {
	if err := s.block(w, r); err != nil {
		return err
	}
	return reply(w, http.StatusOK, s.node.Coordinator().Placement())
}

func (s *Server) raft(w http.ResponseWriter, r *http.Request) error {
	return reply(w, http.StatusOK, s.node.Coordinator().Status())
}

// events sends the kept events after ?after= as server-sent events and goes on with new ones; with ?follow=false it ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	after, err := number(r, "after", 0)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w)
	for {
		list, more := s.node.Events(after)
		for _, e := range list {
			b, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", e.Seq, b); err != nil {
				return nil // the caller has gone
			}
			after = e.Seq
		}
		if err := flush.Flush(); err != nil || r.URL.Query().Get("follow") == "false" {
			return nil
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return nil
		case <-s.closed:
			return nil
		}
	}
}

// BootstrapRequest forms the cluster.
type BootstrapRequest struct {
	Voters   map[string]string `json:"voters"` // id -> host:port of the cluster port
	IfNeeded bool              `json:"if_needed,omitempty"`
}

func (s *Server) bootstrap(w http.ResponseWriter, r *http.Request) error {
	var q BootstrapRequest
	if err := body(r, &q); err != nil {
		return err
	}
	if len(q.Voters) == 0 {
		return problem("bad-request", "a bootstrap names its voters, id to address")
	}
	if _, ok := q.Voters[s.node.ID()]; !ok {
		return problem("bad-request", "member %s is not among the voters; ask one that is", s.node.ID())
	}
	if err := s.node.Coordinator().Bootstrap(q.Voters, q.IfNeeded); err != nil {
		return err
	}
	return reply(w, http.StatusOK, struct{}{})
}

// JoinRequest takes the asked member into a cluster.
type JoinRequest struct {
	Addresses []string `json:"addresses"` // of cluster ports
}

func (s *Server) join(w http.ResponseWriter, r *http.Request) error {
	var q JoinRequest
	if err := body(r, &q); err != nil {
		return err
	}
	if len(q.Addresses) == 0 {
		return problem("bad-request", "a join names addresses of the cluster")
	}
	if id := s.node.Coordinator().Placement().ClusterID; id != "" {
		return problem("formed", "member %s is part of cluster %s already", s.node.ID(), id)
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	if err := s.node.Coordinator().Join(ctx, q.Addresses); err != nil {
		return err
	}
	return reply(w, http.StatusOK, struct{}{})
}

func (s *Server) leave(w http.ResponseWriter, r *http.Request) error {
	if s.opt.Leave == nil {
		return problem("rejected", "member %s cannot be told to leave; send a signal to its process", s.node.ID())
	}
	p := s.node.Coordinator().Placement()
	if !s.node.Coordinator().Joined() {
		return fmt.Errorf("leave as member %s: %w; stop it instead", s.node.ID(), chainmail.ErrNoCluster)
	}
	if len(p.Target) == 1 && membership.In(p.Target, s.node.ID()) {
		return fmt.Errorf("leave as member %s: %w; stop it instead", s.node.ID(), chainmail.ErrLastMember)
	}
	drop := r.URL.Query().Get("drop_pinned") == "true"
	for _, x := range p.Pins {
		if x.Member == s.node.ID() && !drop {
			return problem("pinned", "member %s holds %d pinned keys of type %s, which no other member has", x.Member, x.Keys, x.Type)
		}
	}
	s.opt.Leave(drop)
	return reply(w, http.StatusAccepted, struct {
		Member string `json:"member"`
	}{s.node.ID()})
}

func (s *Server) limits(w http.ResponseWriter, r *http.Request) error {
	l := s.node.Coordinator().Placement().Limits
	if err := body(r, &l); err != nil {
		return err
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	if err := s.node.Coordinator().SetLimits(ctx, l); err != nil {
		return err
	}
	return reply(w, http.StatusOK, l)
}

func (s *Server) locate(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if q.Get("type") == "" || q.Get("key") == "" {
		return problem("bad-request", "locate needs type and key")
	}
	l, err := s.node.Locate(q.Get("type"), q.Get("key"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, l)
}

// ChangeList is what is known of changes, the running one first, then the ended ones, newest first.
type ChangeList struct {
	Changes []membership.Change `json:"changes"`
}

func (s *Server) changes(w http.ResponseWriter, r *http.Request) error {
	if err := s.block(w, r); err != nil {
		return err
	}
	p := s.node.Coordinator().Placement()
	out := ChangeList{Changes: []membership.Change{}}
	if p.Running != nil {
		out.Changes = append(out.Changes, *p.Running)
	}
	for i := len(p.History) - 1; i >= 0; i-- {
		out.Changes = append(out.Changes, p.History[i])
	}
	return reply(w, http.StatusOK, out)
}

func (s *Server) plan(w http.ResponseWriter, r *http.Request) error {
	var q coordinator.ChangeRequest
	if err := body(r, &q); err != nil {
		return err
	}
	p, err := s.node.Plan(r.Context(), q)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, p)
}

func (s *Server) submit(w http.ResponseWriter, r *http.Request) error {
	var q coordinator.ChangeRequest
	if err := body(r, &q); err != nil {
		return err
	}
	if k := r.Header.Get("Idempotency-Key"); k != "" {
		q.Key = k
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	ch, err := s.node.Coordinator().Submit(ctx, q)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/changes/"+ch.ID)
	return reply(w, http.StatusAccepted, ch)
}

func (s *Server) progress(w http.ResponseWriter, r *http.Request) error {
	if err := s.block(w, r); err != nil {
		return err
	}
	id := r.PathValue("id")
	if id == "running" {
		id = ""
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	p, err := s.node.Progress(ctx, id)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, p)
}
