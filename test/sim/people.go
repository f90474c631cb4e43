package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/drain"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what persons, their tools and bad luck do to Kubernetes.

func (w *World) happens(f func()) { _ = w.act(func() error { f(); return nil }) }

// PersonCordons cordons or uncordons a node.
func (w *World) PersonCordons(name string, on bool) {
	w.happens(func() { w.cordon(name, on, byPerson) })
}

// kubectlRetries is the pause after a refused eviction.
const kubectlRetries = 5 * time.Second

// KubectlDrain is `kubectl drain`, by kubectl's own code: it cordons the node, evicts what was there at the beginning,
// tries again every 5 s, and gives up at a 500. It returns at once; the channel gets how it ended.
func (w *World) KubectlDrain(name string) <-chan error {
	done := make(chan error, 1)
	w.Tell("kubectl drain %s", name)
	w.happens(func() { w.drains[name]++ })
	go func() {
		err := w.drain(w.end, name)
		w.happens(func() {
			w.drains[name]--
			w.tell("kubectl drain %s has ended: %v", name, err)
		})
		done <- err
	}()
	return done
}

// Draining tells whether one of a node is under way.
func (w *World) Draining(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drains[node] > 0
}

func (w *World) drain(ctx context.Context, name string) error {
	h := &drain.Helper{
		Ctx: ctx, Client: server{World: w, user: "kubectl"}, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		GracePeriodSeconds: -1, EvictErrorRetryDelay: kubectlRetries, Out: io.Discard, ErrOut: io.Discard,
	}
	n, err := h.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := drain.RunCordonOrUncordon(h, n, true); err != nil {
		return err
	}
	return drain.RunNodeDrain(h, name)
}

// EvictAny asks for the eviction of one daemon's pod, as anybody might, and tells whether it was granted.
func (w *World) EvictAny(daemon string) (granted bool) {
	w.happens(func() {
		p := w.podOf(w.find(daemon))
		granted = p != nil && w.evict(p, "somebody", false) == nil
	})
	return granted
}

// MayGo tells whether the eviction of a daemon's pod would be granted now.
func (w *World) MayGo(daemon string) error {
	return w.act(func() error {
		p := w.podOf(w.find(daemon))
		if p == nil {
			return fmt.Errorf("%s has no pod", daemon)
		}
		return w.evict(p, "nobody", true)
	})
}

// find finds a daemon: "osd.3", "mon.a", "mgr.a".
func (w *World) find(daemon string) *workload {
	for _, d := range w.workloads {
		if d.daemon() == daemon {
			return d
		}
	}
	return nil
}

// Foreign puts a budget of somebody else over all OSDs, which lets nobody go, or takes it away.
func (w *World) Foreign(on bool) {
	w.happens(func() {
		switch _, is := w.budgets["foreign"]; {
		case on && !is:
			_, _ = w.putBudget(foreignBudget(0), byPerson)
		case !on && is:
			w.dropBudget("foreign", byPerson)
		}
	})
}

// TamperWithBudget is somebody who changes our budget of the OSDs so that any may go, or deletes it.
func (w *World) TamperWithBudget(del bool) {
	w.happens(func() {
		b := w.daemonBudget()
		switch {
		case b == nil:
		case del:
			w.tamper(w.opts.Reaction)
			w.dropBudget(b.Name, byPerson)
		default:
			none := intstr.FromInt32(0)
			b = b.DeepCopy()
			b.Spec.MinAvailable = &none
			w.tamper(w.opts.Reaction)
			_, _ = w.putBudget(b, byPerson)
		}
	})
}

// Taint announces the removal of a node, as an autoscaler does, if the key is of one. With another key it is to drive
// the node's pods off, which the guard of deletions keeps from happening. "" takes that back.
func (w *World) Taint(name, key string) {
	w.happens(func() {
		w.tell("%s is tainted %q", name, key)
		n := w.nodes[name]
		n.tainted, n.taintedAt = key, time.Time{}
		if key != "" {
			n.taintedAt = time.Now()
		}
		w.kubeChanged()
		w.schedule()
	})
}

// Reboot restarts a node. What runs there dies; what is bound there comes back with it.
func (w *World) Reboot(name string) {
	w.happens(func() {
		n := w.nodes[name]
		if n == nil || n.gone || n.rebooting || n.cut {
			return
		}
		w.tell("%s reboots", name)
		n.rebooting, n.ready = true, false
		w.leaveSessions(name)
		for _, p := range w.pods {
			if p.node == name {
				w.crashOn(p)
			}
		}
		w.kubeChanged()
		w.later(reboots, func() {
			n.rebooting, n.ready = false, true
			n.boot++
			w.tell("%s is back", name)
			for _, p := range slices.Clone(w.pods) {
				if p.node == name && p.bound {
					w.later(podStarts, func() { w.run(p) })
				}
			}
			w.kubeChanged()
			w.schedule()
		})
	})
}

// DeleteNode deletes the Node object and all that runs there.
func (w *World) DeleteNode(name string) {
	w.happens(func() {
		n := w.nodes[name]
		if n == nil || n.gone {
			return
		}
		w.tell("%s is deleted", name)
		n.gone = true
		w.crashed = time.Now()
		for _, p := range slices.Clone(w.pods) {
			switch {
			case p.node != name || !p.bound:
			case p.unheard:
				w.endPod(p)
			case !p.leaving():
				w.remove(p)
			}
		}
		w.kubeChanged()
	})
}

// RestoreNode registers a deleted node again, as another object.
func (w *World) RestoreNode(name string) {
	w.happens(func() {
		n := w.nodes[name]
		if n == nil || !n.gone {
			return
		}
		w.tell("%s is registered again", name)
		if w.machines != nil {
			delete(w.machines.lostAt, name) // it runs
		}
		*n = node{name: n.name, zone: n.zone, uid: n.uid + "+", boot: n.boot + 1, ready: true}
		w.kubeChanged()
		w.schedule()
	})
}

// LetGo has a person let a daemon's pod go out of turn, who then does not delete it.
func (w *World) LetGo(daemon string) {
	w.happens(func() {
		if p := w.podOf(w.find(daemon)); p != nil {
			w.tell("a person lets %s go out of turn", daemon)
			p.word = p.name + " ada: it hangs"
			p.writes++
			w.kubeChanged()
		}
	})
}

// OutOfTurn tells whether a daemon's pod may go out of turn.
func (w *World) OutOfTurn(daemon string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.podOf(w.find(daemon))
	return p != nil && p.word != ""
}

// Kill stops a daemon's process. It comes back after a while by itself, as its container is restarted; 0: not before
// Start.
func (w *World) Kill(daemon string, back time.Duration) {
	w.happens(func() {
		d := w.find(daemon)
		p := w.podOf(d)
		if p == nil || !p.bound || p.state != storage.PodReady {
			return
		}
		w.tell("%s crashes", daemon)
		w.crashOn(p)
		w.kubeChanged()
		if back > 0 {
			w.later(back, func() { w.run(p) })
		}
	})
}

// Start starts what Kill stopped.
func (w *World) Start(daemon string) {
	w.happens(func() {
		w.tell("%s is started again", daemon)
		if p := w.podOf(w.find(daemon)); p != nil && p.state == storage.PodNotReady {
			w.run(p)
		}
	})
}

// KillOSD crashes an OSD. Its container comes back by itself after a moment.
func (w *World) KillOSD(id int) { w.Kill(fmt.Sprintf("osd.%d", id), 2*time.Second) }

// BreakDisk ends an OSD for good. Its pod crashes again and again.
func (w *World) BreakDisk(id int) {
	w.happens(func() {
		w.tell("the disk of osd.%d breaks", id)
		w.osds[id].dead = true
	})
	w.Kill(fmt.Sprintf("osd.%d", id), 0)
}

// MoveCopy moves a copy of a PG to another OSD, as `ceph osd pg-upmap-items` does. It may be one of a zone that has a
// copy already.
func (w *World) MoveCopy(pg, from, to int) {
	w.happens(func() {
		w.tell("a person moves the copy of PG 1.%x from osd.%d to osd.%d", pg, from, to)
		w.pgs[pg].moved = map[int]int{from: to}
		w.epoch++
		w.hurt = time.Now()
		w.place()
		w.broadcast()
	})
}

// Scale scales a daemon's Deployment to 0, or back to 1.
func (w *World) Scale(daemon string, replicas int) {
	w.happens(func() {
		d := w.find(daemon)
		w.tell("%s is scaled to %d", daemon, replicas)
		d.replicas = replicas
		if p := w.podOf(d); replicas == 0 && p != nil {
			w.crashed = time.Now()
			w.remove(p)
		}
		w.replace(d)
		w.tellWatcher()
	})
}

// Hang stops daemons, or all daemons on nodes, with SIGSTOP, or lets them go on: their pods stay ready.
func (w *World) Hang(on bool, what ...string) {
	w.happens(func() {
		w.tell("%v %s", what, map[bool]string{true: "hang", false: "go on"}[on])
		for _, o := range w.osds {
			if slices.Contains(what, o.host) || slices.Contains(what, o.name()) {
				w.hang(o, on)
			}
		}
		for _, m := range w.mons {
			if slices.Contains(what, m.host) || slices.Contains(what, "mon."+m.name) {
				w.hangMon(m, on)
			}
		}
		p := w.podOf(w.workload("mgr", "a"))
		if slices.Contains(what, "mgr.a") || p != nil && slices.Contains(what, p.node) {
			w.hangManager(on)
		}
	})
}

// Hammer is a client that asks for the eviction of every OSD, again and again, for a while.
func (w *World) Hammer(lasting, every time.Duration) {
	w.Tell("somebody evicts every OSD, all the time, for %s", lasting)
	go func() {
		for end := time.Now().Add(lasting); time.Now().Before(end) && w.end.Err() == nil; time.Sleep(every) {
			w.happens(func() {
				for _, d := range w.workloads {
					if p := w.podOf(d); d.kind == "osd" && p != nil {
						_ = w.evict(p, byHammer, false)
					}
				}
			})
		}
	}()
}

// Unguarded says that nobody reacts for a while: the budgets stay as they are, and bad luck may come on top. That they
// keep evictions apart nobody has to react for.
func (w *World) Unguarded(d time.Duration) { w.happens(func() { w.unguard(d) }) }

// Guarded ends that, after a while.
func (w *World) Guarded(after time.Duration) {
	w.happens(func() { w.unguarded = time.Now().Add(after) })
}

// Blind says that no watcher tells the keeper what happens in Kubernetes, or that one does again.
func (w *World) Blind(on bool) { w.happens(func() { w.blind, w.sighted = on, time.Now() }) }

func (w *World) unguard(d time.Duration) {
	if until := time.Now().Add(d); until.After(w.unguarded) {
		w.unguarded = until
	}
}

// tamper says that a person has made the budgets say something else, and that nobody can have mended that for a while.
func (w *World) tamper(d time.Duration) {
	w.unguard(d)
	if until := time.Now().Add(d); until.After(w.tampered) {
		w.tampered = until
	}
}

// Disconnect has a person change an OSD's key in Ceph, so that it loses its session with a monitor and gets no other
// one until it is restarted. It serves all the same.
func (w *World) Disconnect(osd string) {
	w.happens(func() {
		for _, o := range w.osds {
			if o.name() == osd && o.serves() && o.cutAt.IsZero() {
				w.tell("%s loses the monitors", osd)
				o.cutAt = time.Now()
			}
		}
	})
}

// Reconnect has a person restart the OSDs that have lost the monitors, without asking anybody.
func (w *World) Reconnect() {
	w.happens(func() {
		for _, o := range w.osds {
			if !o.cutAt.IsZero() && o.running {
				w.tell("a person restarts %s", o.name())
				w.crashed = time.Now()
				w.stopOSD(o)
				w.startOSD(o)
			}
		}
	})
}

// SlowOperations makes an OSD slow, as a disk does that is about to fail; "": none is.
func (w *World) SlowOperations(osd string) {
	w.happens(func() {
		w.tell("slow operations: %q", osd)
		w.slow = osd
	})
}
