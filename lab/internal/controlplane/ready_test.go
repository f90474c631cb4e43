package controlplane

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func nobodyEnds() error { return nil }

func quiet(string) {}

// A server that starts on busy processors: it answers, but not within a second, and at first with no.
func TestAwaitsASlowServer(t *testing.T) {
	var asked atomic.Int32
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		select {
		case <-time.After(1500 * time.Millisecond):
		case <-r.Context().Done(): // whoever asked has hung up
		}
	}))
	defer slow.Close()
	c := http.Client{Timeout: readyPatience}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := awaitReady(ctx, &c, slow.URL, nobodyEnds, quiet); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
}

func TestAwaitsNoServerThatEnded(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	ended := errors.New("it ended: exit status 1")
	err := awaitReady(t.Context(), http.DefaultClient, gone.URL, func() error { return ended }, quiet)
	if !errors.Is(err, ended) {
		t.Errorf("%v, want %v", err, ended)
	}
}

func TestGivesUpWithTheLastAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int32
	never := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 2 {
			cancel()
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer never.Close()
	err := awaitReady(ctx, http.DefaultClient, never.URL, nobodyEnds, quiet)
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v, want the answer that it had", err)
	}
}
