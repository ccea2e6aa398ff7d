package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"chainmail"
	"chainmail/actor/builtin"
)

// Types that an application defines are asked in JSON like the built-in ones, and errors have the same form.
func TestOwnTypes(t *testing.T) {
	n, err := chainmail.Start(t.Context(), chainmail.Config{Dev: true, NodeID: "dev", Types: builtin.Types()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	h := serve(t, NewServer(n, Options{}))
	for _, x := range []struct {
		verb, path, id, body string
		status               int
		want                 string
	}{
		{"POST", "/v1/actors/lock/l/acquire", "", `{"holder":"a","ttl_ms":60000}`, 200, `"token":1`},
		{"POST", "/v1/actors/lock/l/acquire", "", `{"holder":"b","ttl_ms":60000}`, 422, `lock is held by a`},
		{"GET", "/v1/actors/lock/l/acquire", "", ``, 400, `use POST`},
		{"GET", "/v1/actors/lock/l/holder", "", ``, 200, `"holder":"a"`},
		{"POST", "/v1/actors/lock/l/steal", "", ``, 422, `acquire, holder, release`},
		{"POST", "/v1/actors/lock/l/acquire", "", `{"holder":1}`, 400, `holder`},
		{"POST", "/v1/actors/queue/q/push", "once", `{"data":"x"}`, 200, `1`},
		{"POST", "/v1/actors/queue/q/push", "once", `{"data":"x"}`, 200, `1`},
		{"POST", "/v1/actors/queue/q/push", "", `{"data":"x"}`, 200, `2`},
		{"POST", "/v1/actors/counter/c/add", "once", `{"delta":5}`, 200, `"sum":5`},
		{"POST", "/v1/actors/counter/c/add", "once", `{"delta":5}`, 200, `"sum":5`},
		{"POST", "/v1/actors/counter/c/add", strings.Repeat("x", 200), `{"delta":5}`, 422, `request id of 200 bytes`},
		{"GET", "/v1/actors/counter/c/get", "", ``, 200, `"sum":5`},
		{"POST", "/v1/actors/none/c/get", "", ``, 422, `counter, kv, lock, map, queue`},
		{"GET", "/v1/actors?type=counter", "", ``, 200, `"sum":5`},
		{"GET", "/v1/actors?type=queue", "", ``, 200, `{"Last":2,"Taken":{"pages":0},"Waiting":{"pages":2}}`},
		{"GET", "/v1/actors?type=none", "", ``, 400, `counter, kv, lock, map, queue`},
	} {
		q, err := http.NewRequest(x.verb, h.URL+x.path, strings.NewReader(x.body))
		if err != nil {
			t.Fatal(err)
		}
		if x.id != "" {
			q.Header.Set("Idempotency-Key", x.id)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != x.status || !strings.Contains(string(got), x.want) {
			t.Errorf("%s %s %s gives %d %s, not %d with %s", x.verb, x.path, x.body, resp.StatusCode, got, x.status, x.want)
		}
	}
}
