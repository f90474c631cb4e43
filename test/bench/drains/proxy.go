package main

import (
	"cmp"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// proxy stands between lockkeeper and the API server, and counts. The API server's own metrics do not tell who asks.
type proxy struct {
	server *httptest.Server

	mu    sync.Mutex
	count map[string]int // by user agent, verb and resource
}

func newProxy(cfg *rest.Config) (*proxy, error) {
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, err
	}
	// Without the caller's own certificate: each request brings its own token.
	tlsConfig, err := rest.TLSConfigFor(
		&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: cfg.CAFile, CAData: cfg.CAData}})
	if err != nil {
		return nil, err
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true},
		FlushInterval: -1, // a watch is read as it is written
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p := &proxy{count: map[string]int{}}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p.note(r)
		forward.ServeHTTP(rw, r)
	}))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = forward.ErrorLog
	p.server.StartTLS() // clients send no token without
	return p, nil
}

// certificate is what clients have to trust.
func (p *proxy) certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

func (p *proxy) note(r *http.Request) {
	if strings.Contains(r.URL.Path, "/leases/") {
		return // every leader renews its Lease, whatever else it does
	}
	verb := r.Method
	if r.URL.Query().Get("watch") == "true" {
		verb = "WATCH"
	}
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count[agent+" "+verb+" "+r.URL.Path]++
}

// words are the requests so far, by user agent, verb and resource.
func (p *proxy) words() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.count)
}

// explain tells which requests came since, the most frequent first.
func (p *proxy) explain(since map[string]int) {
	now := p.words()
	what := slices.SortedFunc(maps.Keys(now), func(a, b string) int {
		return cmp.Or(cmp.Compare(now[b]-since[b], now[a]-since[a]), strings.Compare(a, b))
	})
	for _, request := range what {
		if n := now[request] - since[request]; n > 0 {
			fmt.Fprintf(os.Stderr, "%5d %s\n", n, request)
		}
	}
}

func (p *proxy) total() int {
	n := 0
	for _, c := range p.words() {
		n += c
	}
	return n
}
