package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Serve answers what the API server asks kubelets for on behalf of `kubectl logs`, exec and port-forward, until ctx
// ends.
func (k *Kubelet) Serve(ctx context.Context, config *tls.Config) error {
	listener, err := tls.Listen("tcp", net.JoinHostPort(hostIP, strconv.Itoa(k.Port)), config)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: requestTimeout}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() { _ = server.Serve(listener) }() // ends with ctx
	return nil
}

// pod finds a pod by the names in a request's path. One on a node that is cut off cannot be reached.
func (k *Kubelet) pod(r *http.Request) (*pod, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	for _, n := range k.allNodes() {
		for _, p := range n.allPods() {
			if object := p.snapshot().spec; object.Namespace == namespace && object.Name == name && !n.silent() {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("no node that can be reached runs pod %s/%s", namespace, name)
}

func (k *Kubelet) container(r *http.Request, name string) (*container, error) {
	p, err := k.pod(r)
	if err != nil {
		return nil, err
	}
	for _, c := range p.containers {
		if c.spec.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("pod %s has no container %s", r.PathValue("pod"), name)
}

func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	c, err := k.container(r, r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	restarts := c.restarts()
	if r.FormValue("previous") == "true" {
		restarts--
	}
	log, err := os.Open(c.logFile(restarts))
	if errors.Is(err, fs.ErrNotExist) && restarts > 0 && r.FormValue("previous") != "true" {
		restarts-- // the next attempt has not begun
		log, err = os.Open(c.logFile(restarts))
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("no log of %s", filepath.Base(c.logFile(restarts))), http.StatusNotFound)
		return
	}
	defer log.Close()
	if lines, err := strconv.Atoi(r.FormValue("tailLines")); err == nil {
		if err := seekToTail(log, lines); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	var out io.Writer = w
	if limit, err := strconv.ParseInt(r.FormValue("limitBytes"), 10, 64); err == nil {
		_, _ = io.CopyN(out, log, limit)
		return
	}
	follow(r.Context(), out, log, r.FormValue("follow") == "true", func() bool { return c.restarts() == restarts })
}

// followPeriod is how often a log is looked at for more.
const followPeriod = 100 * time.Millisecond

// follow copies what is there, and if asked to, what is added as long as there may be more.
func follow(ctx context.Context, w io.Writer, log io.Reader, more bool, mayGrow func() bool) {
	for {
		last := !more || !mayGrow()
		if _, err := io.Copy(w, log); err != nil || last {
			return
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followPeriod):
		}
	}
}

// seekToTail goes to the beginning of the last lines of a file.
func seekToTail(f *os.File, lines int) error {
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	const blockSize = 4096
	block := make([]byte, blockSize)
	newlines := 0
	for at > 0 {
		n := min(at, blockSize)
		at -= n
		if _, err := f.ReadAt(block[:n], at); err != nil {
			return err
		}
		for i := n - 1; i >= 0; i-- {
			if block[i] != '\n' {
				continue
			}
			if newlines++; newlines > lines { // the last line ends with one too
				_, err = f.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

func (c *container) restarts() int32 {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.state.restarts
}
