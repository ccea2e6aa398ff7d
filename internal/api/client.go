package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

// ErrNoEndpoint: none of the endpoints could be reached.
var ErrNoEndpoint = errors.New("no endpoint can be reached")

// Client asks the API of any of several members. It may be used from any goroutine.
type Client struct {
	http  *http.Client
	token string
	// Hasty gives up when each endpoint was tried once and none was reached; else they are tried until the call's
	// context ends.
	Hasty bool

	mu    sync.Mutex
	bases []string // http://host:port; the first one is asked first
}

const (
	dialTimeout = time.Second
	keepIdle    = 64 // connections to one member
	retryPause  = 20 * time.Millisecond
	answerTime  = 250 * time.Millisecond
)

// NewClient makes a Client of endpoints, host:port or URLs. transport may be nil.
func NewClient(endpoints []string, token string, transport *http.Transport) *Client {
	if transport == nil {
		transport = &http.Transport{}
	}
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	transport.MaxIdleConnsPerHost = keepIdle
	c := &Client{http: &http.Client{Transport: transport}, token: token}
	c.SetEndpoints(endpoints)
	return c
}

// Close ends the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// SetEndpoints replaces the endpoints.
func (c *Client) SetEndpoints(endpoints []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bases = c.bases[:0:0]
	for _, e := range endpoints {
		if !strings.Contains(e, "://") {
			e = "http://" + e
		}
		c.bases = append(c.bases, strings.TrimSuffix(e, "/"))
	}
}

// Endpoints gives the present ones.
func (c *Client) Endpoints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bases)
}

// Refresh asks for the members and takes their endpoints, those that are on the ring first.
func (c *Client) Refresh(ctx context.Context) error {
	p, err := c.Placement(ctx)
	if err != nil {
		return err
	}
	if next := endpoints(p, c.scheme()); len(next) > 0 {
		c.SetEndpoints(next)
	}
	return nil
}

func endpoints(p membership.Placement, scheme string) []string {
	var on, off []string
	for _, m := range p.Members {
		switch {
		case m.HTTP == "" || m.Down:
		case membership.In(p.Target, m.ID):
			on = append(on, scheme+m.HTTP)
		default:
			off = append(off, scheme+m.HTTP)
		}
	}
	if len(on) > 0 {
		return on
	}
	return off
}

func (c *Client) scheme() string {
	if b := c.Endpoints(); len(b) > 0 && strings.HasPrefix(b[0], "https://") {
		return "https://"
	}
	return "http://"
}

// failed puts an endpoint last, if it is still the first.
func (c *Client) failed(base string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bases) > 1 && c.bases[0] == base {
		c.bases = append(slices.Clone(c.bases[1:]), base)
	}
}

// Do sends a request and reads the JSON answer into out. It goes from endpoint to endpoint until ctx ends, as long as
// the request was certainly not run, or again is true: then it may be sent again whatever became of it. Errors are
// *Problem, or ErrNoEndpoint.
func (c *Client) Do(ctx context.Context, method, path string, in, out any, again bool) error {
	return c.do(ctx, method, path, "", in, out, again)
}

// do is Do with a request id, "" for none: the request takes effect once, however often it is sent.
func (c *Client) do(ctx context.Context, method, path, id string, in, out any, again bool) error {
	began, maybe := time.Now(), false // an attempt may have taken effect
	var payload []byte
	if in != nil {
		var err error
		if payload, err = json.Marshal(in); err != nil {
			return err
		}
	}
	tried := 0
	var said error // the last word of a member, which says more than that time is over
	for {
		bases := c.Endpoints()
		if len(bases) == 0 {
			return ErrNoEndpoint
		}
		h := http.Header{}
		if id != "" {
			// In lower case: by the usual name package http would send the request again by itself where a connection is lost,
			// and tell the error of the last attempt alone.
			h[strings.ToLower(idHeader)] = []string{id}
		}
		if maybe {
			h.Set(ageHeader, time.Since(began).String())
		}
		err := c.once(ctx, method, bases[0], path, h, payload, out)
		if err == nil || !mayRetry(err, again) {
			return err
		}
		if p := (*Problem)(nil); errors.As(err, &p) {
			maybe = maybe || id != "" && p.UnknownOutcome
			said = err
		} else if ctx.Err() != nil && said != nil {
			return unknownIf(maybe, said)
		}
		c.failed(bases[0])
		if tried++; tried < len(bases) && ctx.Err() == nil {
			continue
		}
		tried = 0
		if c.Hasty && errors.Is(err, ErrNoEndpoint) {
			return unknownIf(maybe, err)
		}
		if _, bounded := ctx.Deadline(); !bounded {
			return unknownIf(maybe, err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return unknownIf(maybe, err)
		}
	}
}

// unknownIf makes the end of a request that may have taken effect what it is: that its last attempt was not run says nothing
// of those before.
func unknownIf(maybe bool, err error) error {
	var p *Problem
	if !maybe || errors.As(err, &p) && p.UnknownOutcome {
		return err
	}
	return problem("unknown-outcome", "repeated: %v", err)
}

// errNotSent: the endpoint was not reached, so that nothing was run.
type errNotSent struct{ err error }

func (e *errNotSent) Error() string   { return e.err.Error() }
func (e *errNotSent) Unwrap() []error { return []error{ErrNoEndpoint, e.err} }

// mayRetry says whether a request can be sent again: nothing of it was run, and another time or member may do it.
func mayRetry(err error, again bool) bool {
	var p *Problem
	var n *errNotSent
	switch {
	case errors.As(err, &n):
		return true
	case !errors.As(err, &p) || p.Forgotten:
		return false
	case p.Code == "unavailable" || p.Code == "closed":
		return true
	case p.Code == "no-leader" || p.UnknownOutcome:
		return again
	}
	return false
}

func (c *Client) once(ctx context.Context, method, base, path string, h http.Header, payload []byte, out any) error {
	target := base + path
	short := false // too little time is left for an answer
	if d, ok := ctx.Deadline(); ok {
		mark := "?"
		if strings.Contains(path, "?") {
			mark = "&"
		}
		left := time.Until(d)
		short = left < answerTime
		left -= min(answerTime, left/10) // so that the member's word comes before the deadline
		target += mark + "timeout=" + max(left, time.Millisecond).String()
	}
	resp, err := c.send(ctx, method, base, target, h, payload)
	var b []byte
	if err == nil {
		defer resp.Body.Close()
		if b, err = io.ReadAll(resp.Body); err != nil {
			err = sendError(method, path, base, err)
		}
	}
	if p := (*Problem)(nil); errors.As(err, &p) && short {
		p.Silent = false
	}
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		p := &Problem{}
		if json.Unmarshal(b, p) != nil || p.Code == "" {
			p = problem("internal", "%s answered %s: %.200s", base, resp.Status, b)
		}
		return p
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("answer of %s: %w", base, err)
	}
	return nil
}

// send sends one request to one endpoint, with the token. Close the answer's body.
func (c *Client) send(ctx context.Context, method, base, target string, h http.Header, payload []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(payload))
	if err != nil {
		return nil, problem("bad-request", "%v", err)
	}
	maps.Copy(r.Header, h)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, sendError(method, strings.TrimPrefix(target, base), base, err)
	}
	return resp, nil
}

func sendError(method, path, base string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return &errNotSent{fmt.Errorf("%s: %w", base, err)}
	}
	if path, _, _ = strings.Cut(path, "?"); method == http.MethodGet || strings.HasSuffix(path, ":plan") {
		return &errNotSent{fmt.Errorf("%s: %w", base, err)} // it changes nothing
	}
	p := problem("unknown-outcome", "%s did not answer: %v", base, err)
	p.Silent = errors.Is(err, context.DeadlineExceeded)
	return p
}

// esc writes a key as one element of a path; those that mean directories need it for their dots too.
func esc(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

// Placement gives the placement of the asked member.
func (c *Client) Placement(ctx context.Context) (p membership.Placement, err error) {
	return p, c.Do(ctx, http.MethodGet, "/v1/placement", nil, &p, true)
}

// Members gives the members' own statuses.
func (c *Client) Members(ctx context.Context) (m []chainmail.MemberStatus, err error) {
	return m, c.Do(ctx, http.MethodGet, "/v1/members", nil, &m, true)
}

// Status gives one screen about the cluster.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.Do(ctx, http.MethodGet, "/v1/status", nil, &s, true)
}

// CurrentStatus is Status when the asked member has caught up with the leader.
func (c *Client) CurrentStatus(ctx context.Context) (s Status, err error) {
	return s, c.Do(ctx, http.MethodGet, "/v1/status?current=true", nil, &s, true)
}

// Submit starts a change. Without an idempotency key in q one is made, so that sending it again is safe.
func (c *Client) Submit(ctx context.Context, q coordinator.ChangeRequest) (ch membership.Change, err error) {
	if q.Key == "" {
		q.Key = coordinator.NewKey()
	}
	return ch, c.Do(ctx, http.MethodPost, "/v1/changes", q, &ch, true)
}

// Plan gives what a change would do.
func (c *Client) Plan(ctx context.Context, q coordinator.ChangeRequest) (p coordinator.ChangePlan, err error) {
	return p, c.Do(ctx, http.MethodPost, "/v1/changes:plan", q, &p, true)
}

// PlanLoss gives what declaring members lost would give up.
func (c *Client) PlanLoss(ctx context.Context, q coordinator.LossRequest) (p coordinator.LossPlan, err error) {
	return p, c.Do(ctx, http.MethodPost, "/v1/operator/losses:plan", q, &p, true)
}

// DeclareLost gives up the copies of members. With the version of its plan, sending it again is safe.
func (c *Client) DeclareLost(ctx context.Context, q coordinator.LossRequest) (l membership.Loss, err error) {
	return l, c.Do(ctx, http.MethodPost, "/v1/operator/losses", q, &l, true)
}

// Progress gives where a change stands, "" for the running one.
func (c *Client) Progress(ctx context.Context, id string) (p chainmail.ChangeProgress, err error) {
	if id == "" {
		id = "running"
	}
	return p, c.Do(ctx, http.MethodGet, "/v1/changes/"+esc(id), nil, &p, true)
}

// Steer pauses, resumes or aborts a change, "" for the running one.
func (c *Client) Steer(ctx context.Context, id, what string) error {
	if id == "" {
		id = "running"
	}
	return c.Do(ctx, http.MethodPost, "/v1/changes/"+esc(id)+":"+what, nil, nil, true)
}

// Ask asks an actor. read says that the method changes nothing; any other carries a request id, under which it is sent again,
// to other members too, while its outcome is unknown: it takes effect once.
func (c *Client) Ask(ctx context.Context, typ, key, method string, read bool, in, out any) error {
	if key == "" { // no path leads there
		return problem("rejected", "%s %s: the key is empty", method, typ)
	}
	if read {
		return c.Do(ctx, http.MethodGet, ActorPath(typ, key, method), in, out, true)
	}
	return c.do(ctx, http.MethodPost, ActorPath(typ, key, method), coordinator.NewKey(), in, out, true)
}

// ActorPath is where a method of an actor is asked.
func ActorPath(typ, key, method string) string {
	return "/v1/actors/" + esc(typ) + "/" + esc(key) + "/" + esc(method)
}

// Get gives a kv value and its stamp; chainmail.ErrNotFound if there is none.
func (c *Client) Get(ctx context.Context, key string) ([]byte, string, error) {
	var v Value
	if err := c.Ask(ctx, "kv", key, "get", true, nil, &v); err != nil {
		return nil, "", err
	}
	b, err := v.Bytes()
	return b, v.Stamp, err
}

// Put sets a kv value and gives its stamp.
func (c *Client) Put(ctx context.Context, key string, value []byte) (string, error) {
	var v Value
	err := c.Ask(ctx, "kv", key, "put", false, MakeValue(value), &v)
	return v.Stamp, err
}

// CompareAndSwap sets a kv value if the present one has the stamp expect, "" for none.
func (c *Client) CompareAndSwap(ctx context.Context, key, expect string, value []byte) (string, error) {
	in, out := MakeValue(value), Value{}
	in.Expect = &expect
	err := c.Ask(ctx, "kv", key, "cas", false, in, &out)
	return out.Stamp, err
}

// Delete removes a kv value and says whether there was one.
func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	var d Deleted
	err := c.Ask(ctx, "kv", key, "delete", false, nil, &d)
	return d.Deleted, err
}

// Add adds to a counter and gives the sum.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	var s Sum
	err := c.Ask(ctx, "counter", key, "add", false, Delta{delta}, &s)
	return s.Sum, err
}

// Count gives a counter's sum.
func (c *Client) Count(ctx context.Context, key string) (int64, error) {
	var s Sum
	err := c.Ask(ctx, "counter", key, "get", true, nil, &s)
	return s.Sum, err
}

// List gives a part of the keys of a type that a member owns.
func (c *Client) List(ctx context.Context, member, typ, prefix, after string, limit int) (p Page, err error) {
	q := url.Values{"member": {member}, "type": {typ}, "prefix": {prefix}, "after": {after}, "limit": {fmt.Sprint(limit)}}
	return p, c.Do(ctx, http.MethodGet, "/v1/actors?"+q.Encode(), nil, &p, true)
}

// Stream gives the body of a feed; ctx ends it. Close it.
func (c *Client) Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	bases := c.Endpoints()
	if len(bases) == 0 {
		return nil, ErrNoEndpoint
	}
	resp, err := c.send(ctx, http.MethodGet, bases[0], bases[0]+path, nil, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		p := problem("internal", "%s answered %s", bases[0], resp.Status)
		json.NewDecoder(resp.Body).Decode(p)
		return nil, p
	}
	return resp.Body, nil
}

// pageSize is how many keys Each asks for at once.
const pageSize = 500

// Each calls f with every key of a type, once, as the members that own them have it: by member, and by key for each.
// While a change runs a key may move from a member that was not asked yet to one that was: Each then begins to see it
// missing, so that it goes over the members again and gives what it has not given, until two rounds show one placement.
func (c *Client) Each(ctx context.Context, typ, prefix string, f func(Item) error) error {
	given := map[string]bool{}
	for {
		before, err := c.Placement(ctx)
		if err != nil {
			return err
		}
		for _, m := range before.Members {
			if membership.In(before.Base, m.ID) {
				if err := c.eachOf(ctx, m.ID, typ, prefix, given, f); err != nil {
					return err
				}
			}
		}
		after, err := c.Placement(ctx)
		if err != nil {
			return err
		}
		if after.Version == before.Version && before.Stage == membership.StageStable {
			return nil
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return fmt.Errorf("list %s: the members changed all the time: %w", typ, ctx.Err())
		}
	}
}

func (c *Client) eachOf(ctx context.Context, member, typ, prefix string, given map[string]bool, f func(Item) error) error {
	for after := ""; ; {
		p, err := c.List(ctx, member, typ, prefix, after, pageSize)
		if err != nil {
			return err
		}
		for _, it := range p.Items {
			after = it.Key
			if given[it.Key] {
				continue
			}
			given[it.Key] = true
			if err := f(it); err != nil {
				return err
			}
		}
		if !p.More {
			return nil
		}
	}
}
