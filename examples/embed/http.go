package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"chainmail"
	"chainmail/actor"
)

func (h *host) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /carts/{name}", h.list)
	mux.HandleFunc("POST /carts/{name}", h.put)
	return mux
}

// health is for load balancers: 200 if requests should be sent here, else 503 and why not.
func (h *host) health(w http.ResponseWriter, r *http.Request) {
	select {
	case <-h.left:
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	default:
	}
	for _, c := range h.node.Ready(r.Context()) {
		if !c.OK {
			http.Error(w, c.Name+": "+c.Why, http.StatusServiceUnavailable)
			return
		}
	}
	answer(w, "ready")
}

func (h *host) list(w http.ResponseWriter, r *http.Request) {
	items, err := list.Ask(r.Context(), h.node, r.PathValue("name"), actor.None{})
	reply(w, items, err)
}

// put takes an Idempotency-Key: a client that heard nothing can send its request again, to any host.
func (h *host) put(w http.ResponseWriter, r *http.Request) {
	var l line
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&l); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	items, err := put.AskOnce(r.Context(), h.node, r.PathValue("name"), r.Header.Get("Idempotency-Key"), l)
	reply(w, items, err)
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	answer(w, v)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// statusOf tells clients what an error says about trying again.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errBadLine), errors.Is(err, chainmail.ErrRejected):
		return http.StatusBadRequest
	case errors.Is(err, chainmail.ErrOverloaded):
		return http.StatusTooManyRequests
	case errors.Is(err, chainmail.ErrUnavailable), errors.Is(err, chainmail.ErrClosed):
		return http.StatusServiceUnavailable // it was not done
	case errors.Is(err, chainmail.ErrUnknownOutcome):
		return http.StatusGatewayTimeout // ask again with the same Idempotency-Key
	}
	return http.StatusInternalServerError
}
