package supervisor

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
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

// serveControl answers on a socket in the lab's folder, which only its owner can enter. life is that of what requests create.
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
		world := l.kubelet
		l.mu.Unlock()
		if world == nil {
			http.Error(w, "the lab is still starting", http.StatusServiceUnavailable)
			return
		}
		if err := fault.Inject(life, world, f); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		answer(w, struct{}{})
	})
	mux.HandleFunc("POST /load/{verb}", func(w http.ResponseWriter, r *http.Request) {
		verbs := map[string]func() error{"start": l.startLoad, "stop": l.stopLoad}
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

func (l *lab) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Ready: l.ready}
	if l.controlPlane != nil {
		for _, p := range l.controlPlane.Processes() {
			s.Components = append(s.Components, p.State())
		}
	}
	for _, p := range []*child.Process{l.temporal, l.load} {
		if p != nil {
			s.Components = append(s.Components, p.State())
		}
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
