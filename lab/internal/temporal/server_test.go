package temporal

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

func TestChildKeepsToItsInstance(t *testing.T) {
	inst := instance.Instance{Name: "t", Dir: "/lab/t", Ports: instance.Ports{Base: 12000}}
	spec := Child(inst, "/bin/temporal")
	line := strings.Join(spec.Args, " ")
	for _, want := range []string{
		"--port 12005", "--ui-port 12006", "--db-filename /lab/t/temporal.db",
		"journal_mode=WAL",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is missing in %s", want, line)
		}
	}
	if strings.Contains(line, "headless") {
		t.Error("the UI is off")
	}
}

func TestEnsureBinaryBuildsOnlyWhatIsOld(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "temporal")
	for _, f := range []string{binary, filepath.Join(dir, "go.mod")} {
		if err := os.WriteFile(f, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(binary, later, later); err != nil {
		t.Fatal(err)
	}
	got, err := EnsureBinary(t.Context(), dir, binary, func(string) { t.Error("builds") })
	if err != nil || got != binary {
		t.Error(got, err)
	}
	t.Setenv("LAB_TEMPORAL", filepath.Join(dir, "none"))
	if _, err := EnsureBinary(t.Context(), dir, binary, func(string) {}); err == nil {
		t.Error("a LAB_TEMPORAL that does not exist is accepted")
	}
}

// TestServer starts two real servers side by side and one of them again after SIGKILL. It needs the program to be
// built.
func TestServer(t *testing.T) {
	binary := os.Getenv("LAB_TEMPORAL")
	if binary == "" {
		binary, _ = filepath.Abs("../../bin/temporal")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatal("temporal is not built: run make build")
	}
	a, b := newInstance(t), newInstance(t)
	start := func(inst instance.Instance) *child.Process {
		p, err := child.Start(Child(inst, binary))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		ctx, cancel := context.WithTimeout(t.Context(), instance.StartPatience)
		defer cancel()
		begin := time.Now()
		if err := WaitReady(ctx, inst, func(s string) { t.Log(s) }); err != nil {
			t.Fatal(err)
		}
		t.Logf("ready after %s", time.Since(begin).Round(time.Millisecond))
		return p
	}
	first := start(a)
	start(b)
	answer, err := http.Get(UI(a))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("UI: %s", answer.Status)
	}
	first.Kill()
	start(a)
}

// newInstance has a folder and four free ports where Temporal's are expected.
func newInstance(t *testing.T) instance.Instance {
	t.Helper()
	inst := instance.Instance{Name: "t", Dir: t.TempDir(), Ports: freePorts(t)}
	if err := os.MkdirAll(filepath.Dir(inst.Log("temporal")), 0o700); err != nil {
		t.Fatal(err)
	}
	return inst
}

var nextBase = 32000

func freePorts(t *testing.T) instance.Ports {
	t.Helper()
	for ; nextBase < 32700; nextBase += 20 {
		p := instance.Ports{Base: nextBase}
		if free(p.TemporalFrontend(), p.TemporalUI(), p.TemporalMetrics(), p.TemporalInternal()) {
			nextBase += 20
			return p
		}
	}
	t.Fatal("no free ports")
	return instance.Ports{}
}

func free(ports ...int) bool {
	for _, port := range ports {
		l, err := net.Listen("tcp", instance.Loopback(port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
