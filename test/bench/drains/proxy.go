package main

import (
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// proxy stands between lockkeeper and the API server, and counts. The API server's own metrics do not tell who asks.
type proxy struct {
	server *http.Server
	url    string

	mu    sync.Mutex
	count map[string]int // by user agent, verb and resource
}

func newProxy(cfg *rest.Config) (*proxy, error) {
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, err
	}
	// Without the caller's own certificate: each request brings its own token.
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: cfg.CAFile, CAData: cfg.CAData}})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{count: map[string]int{}, url: "http://" + l.Addr().String()}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true},
		FlushInterval: -1, // a watch is read as it is written
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p.note(r)
		defer func() { _ = recover() }() // http.ErrAbortHandler, when a watch is given up
		forward.ServeHTTP(rw, r)
	})}
	go func() {
		if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Fatal(err)
		}
	}()
	return p, nil
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

func (p *proxy) total() int {
	n := 0
	for _, c := range p.words() {
		n += c
	}
	return n
}
