// Package fault says what can go wrong in a lab on request.
package fault

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Kind is a kind of fault, or of its end.
type Kind string

const (
	NodeLost   Kind = "node-lost"
	NodeReturn Kind = "node-return"
	NodeReboot Kind = "node-reboot"
	NodeAdd    Kind = "node-add"
	// NodeRemove takes a machine away for good.
	NodeRemove Kind = "node-remove"
	NodeHang   Kind = "node-hang"
	NodeResume Kind = "node-resume"
	PodKill    Kind = "pod-kill"
	PodHang    Kind = "pod-hang"
	PodResume  Kind = "pod-resume"
	// ComponentKill ends a program of the control plane, or Temporal, which the lab then starts again.
	ComponentKill Kind = "component-kill"
	// ComponentHang stops such a program where it is for a while.
	ComponentHang Kind = "component-hang"
	// StorageBreak has the storage of a StorageClass fail.
	StorageBreak Kind = "storage-break"
	StorageMend  Kind = "storage-mend"
)

// Fault is one fault.
type Fault struct {
	Kind Kind `json:"kind"`
	// Target is a node, NAMESPACE/POD, a component, or a StorageClass.
	Target        string        `json:"target"`
	KeepProcesses bool          `json:"keepProcesses,omitempty"` // NodeLost
	Down          time.Duration `json:"down,omitempty"`          // NodeReboot, ComponentKill, ComponentHang
	Zone          string        `json:"zone,omitempty"`          // NodeAdd
	Signal        int           `json:"signal,omitempty"`        // PodKill
}

// World is what faults happen to.
type World interface {
	AddNode(ctx context.Context, name, zone string) error
	DiscardNode(ctx context.Context, name string) error
	LoseNode(name string, keepProcesses bool) error
	ReturnNode(name string) error
	RebootNode(ctx context.Context, name string, down time.Duration) error
	HangNode(name string) error
	ResumeNode(name string) error
	SignalPod(namespace, name string, sig syscall.Signal) error
	KillComponent(name string, down time.Duration) error
	HangComponent(name string, lasting time.Duration) error
	BreakStorage(ctx context.Context, class string) error
	MendStorage(ctx context.Context, class string) error
}

// Inject makes it happen, and returns when it has. The context is that of the world: a node that is added lives as
// long.
func Inject(ctx context.Context, w World, f Fault) error {
	if f.Down < 0 {
		return fmt.Errorf("--down %s: must not be negative", f.Down)
	}
	switch f.Kind {
	case NodeLost:
		return w.LoseNode(f.Target, f.KeepProcesses)
	case NodeReturn:
		return w.ReturnNode(f.Target)
	case NodeReboot:
		return w.RebootNode(ctx, f.Target, f.Down)
	case NodeAdd:
		if f.Zone == "" {
			return fmt.Errorf("--zone: a node needs one")
		}
		return w.AddNode(ctx, f.Target, f.Zone)
	case NodeRemove:
		return w.DiscardNode(ctx, f.Target)
	case NodeHang:
		return w.HangNode(f.Target)
	case NodeResume:
		return w.ResumeNode(f.Target)
	case PodKill:
		if f.Signal < 1 || f.Signal > 64 {
			return fmt.Errorf("--signal %d: allowed are 1 to 64", f.Signal)
		}
		return signalPod(w, f.Target, syscall.Signal(f.Signal))
	case PodHang:
		return signalPod(w, f.Target, syscall.SIGSTOP)
	case PodResume:
		return signalPod(w, f.Target, syscall.SIGCONT)
	case ComponentKill:
		return w.KillComponent(f.Target, f.Down)
	case ComponentHang:
		return w.HangComponent(f.Target, f.Down)
	case StorageBreak:
		return w.BreakStorage(ctx, f.Target)
	case StorageMend:
		return w.MendStorage(ctx, f.Target)
	}
	return fmt.Errorf("unknown fault %q", f.Kind)
}

func signalPod(w World, target string, sig syscall.Signal) error {
	namespace, name, ok := strings.Cut(target, "/")
	if !ok || namespace == "" || name == "" {
		return fmt.Errorf("pod %q: must be NAMESPACE/POD", target)
	}
	return w.SignalPod(namespace, name, sig)
}
