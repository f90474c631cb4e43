package fault

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// world writes down what happens to it.
type world struct{ last string }

func (w *world) note(format string, args ...any) error {
	w.last = fmt.Sprintf(format, args...)
	return nil
}

func (w *world) AddNode(_ context.Context, name, zone string) error {
	return w.note("add %s to %s", name, zone)
}

func (w *world) DiscardNode(_ context.Context, name string) error { return w.note("discard %s", name) }

func (w *world) LoseNode(name string, keep bool) error { return w.note("lose %s %t", name, keep) }
func (w *world) ReturnNode(name string) error          { return w.note("return %s", name) }
func (w *world) RebootNode(_ context.Context, name string, down time.Duration) error {
	return w.note("reboot %s %s", name, down)
}
func (w *world) HangNode(name string) error   { return w.note("hang %s", name) }
func (w *world) ResumeNode(name string) error { return w.note("resume %s", name) }
func (w *world) SignalPod(namespace, name string, sig syscall.Signal) error {
	return w.note("signal %s %s %d", namespace, name, sig)
}

func (w *world) KillComponent(name string, down time.Duration) error {
	return w.note("kill %s %s", name, down)
}

func (w *world) HangComponent(name string, lasting time.Duration) error {
	return w.note("hang %s %s", name, lasting)
}

func (w *world) BreakStorage(_ context.Context, class string) error { return w.note("break %s", class) }

func (w *world) MendStorage(_ context.Context, class string) error { return w.note("mend %s", class) }

func TestInject(t *testing.T) {
	for _, test := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Kind: NodeLost, Target: "a", KeepProcesses: true}, "lose a true"},
		{Fault{Kind: NodeReturn, Target: "a"}, "return a"},
		{Fault{Kind: NodeReboot, Target: "a", Down: time.Second}, "reboot a 1s"},
		{Fault{Kind: NodeReboot, Target: "a", Down: -1}, "error --down"},
		{Fault{Kind: NodeAdd, Target: "a", Zone: "z"}, "add a to z"},
		{Fault{Kind: NodeAdd, Target: "a"}, "error --zone"},
		{Fault{Kind: NodeRemove, Target: "a"}, "discard a"},
		{Fault{Kind: NodeHang, Target: "a"}, "hang a"},
		{Fault{Kind: NodeResume, Target: "a"}, "resume a"},
		{Fault{Kind: PodKill, Target: "ns/p", Signal: 15}, "signal ns p 15"},
		{Fault{Kind: PodKill, Target: "ns/p"}, "error --signal 0"},
		{Fault{Kind: PodHang, Target: "ns/p"}, fmt.Sprintf("signal ns p %d", syscall.SIGSTOP)},
		{Fault{Kind: PodResume, Target: "ns/p"}, fmt.Sprintf("signal ns p %d", syscall.SIGCONT)},
		{Fault{Kind: ComponentKill, Target: "temporal", Down: time.Second}, "kill temporal 1s"},
		{Fault{Kind: ComponentKill, Target: "temporal", Down: -1}, "error --down"},
		{Fault{Kind: ComponentHang, Target: "temporal", Down: time.Second}, "hang temporal 1s"},
		{Fault{Kind: StorageBreak, Target: "zone-disk"}, "break zone-disk"},
		{Fault{Kind: StorageMend, Target: "zone-disk"}, "mend zone-disk"},
		{Fault{Kind: PodHang, Target: "/p"}, "error pod \"/p\""},
		{Fault{Kind: "earthquake"}, "error unknown fault"},
	} {
		w := &world{}
		got := ""
		if err := Inject(t.Context(), w, test.fault); err != nil {
			got = "error " + err.Error()
		}
		if got += w.last; !strings.HasPrefix(got, test.want) {
			t.Errorf("%+v: %s, want %s", test.fault, got, test.want)
		}
	}
}
