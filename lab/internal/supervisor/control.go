package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/fault"
	"github.com/lockkeeper/lockkeeper/lab/internal/kubelet"
)

// Status is how a running lab is.
type Status struct {
	Ready      bool                `json:"ready"`
	Components []child.State       `json:"components"`
	Nodes      []kubelet.NodeState `json:"nodes"`
}

// serveControl answers on a socket in the lab's folder, which only its owner can enter. life is that of what requests
// create.
func (l *lab) serveControl(life context.Context) error {
	_ = os.Remove(l.ControlSocket()) // of a supervisor that was killed; nobody else has our folder
	listener, err := net.Listen("unix", l.ControlSocket())
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, l.status()) })
	mux.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		var f fault.Fault
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		l.mu.Lock()
		k := l.kubelet
		l.mu.Unlock()
		if k == nil {
			http.Error(w, "the lab is still starting", http.StatusServiceUnavailable)
			return
		}
		if err := fault.Inject(life, world{Kubelet: k, lab: l}, f); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		answer(w, struct{}{})
	})
	mux.HandleFunc("POST /load/{verb}", func(w http.ResponseWriter, r *http.Request) {
		verbs := map[string]func() error{
			"start": func() error { return l.startLoad(r.FormValue("volume")) }, "stop": l.stopLoad,
		}
		verb := verbs[r.PathValue("verb")]
		if verb == nil {
			http.NotFound(w, r)
			return
		}
		if err := verb(); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		answer(w, struct{}{})
	})
	mux.HandleFunc("POST /autoscaler/{verb}", startOrStop(l.startAutoscaler, l.stopAutoscaler))
	mux.HandleFunc("POST /karpenter/{verb}", startOrStop(l.startKarpenter, l.stopKarpenter))
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) {
		select {
		case l.stop <- r.FormValue("keep") == "true":
		default: // it is stopping already
		}
		answer(w, struct{}{})
	})
	l.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = l.server.Serve(listener) }() // ends with down
	return nil
}

// world is what faults happen to: the nodes, and the programs that the supervisor watches over.
type world struct {
	*kubelet.Kubelet
	lab *lab
}

// KillComponent ends a program, which is started again.
func (w world) KillComponent(name string, down time.Duration) error {
	p, err := w.component(name)
	if err != nil {
		return err
	}
	return p.Crash(down)
}

// HangComponent stops a program for a while.
func (w world) HangComponent(name string, lasting time.Duration) error {
	p, err := w.component(name)
	if err != nil {
		return err
	}
	return p.Hang(lasting)
}

func (w world) component(name string) (*child.Process, error) {
	w.lab.mu.Lock()
	components := w.lab.components()
	w.lab.mu.Unlock()
	var names []string
	for _, p := range components {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("no component %q: there are %s", name, strings.Join(names, ", "))
}

// components are the programs that run now. The caller holds the lock.
func (l *lab) components() []*child.Process {
	var all []*child.Process
	if l.controlPlane != nil {
		all = append(all, l.controlPlane.Processes()...)
	}
	if l.clusterAPI != nil {
		all = append(all, l.clusterAPI.Process())
	}
	for _, p := range []*child.Process{l.autoscaler, l.karpenter, l.temporal, l.load} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

func (l *lab) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Ready: l.ready}
	for _, p := range l.components() {
		s.Components = append(s.Components, p.State())
	}
	if l.kubelet != nil {
		s.Nodes = l.kubelet.Nodes()
	}
	return s
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the other side may be gone
}
