package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sync/errgroup"
)

// cephOSDName is the CephOSD of a lab whose OSDs run from one.
const cephOSDName = "ceph-osds"

func (w *world) ofCephOSD() bool { return w.env["CEPHOSD"] != "" }

// cephOSD is a CephOSD as far as scenarios look at it. The template is kept as it is, whatever is in it.
type cephOSD struct {
	Metadata struct{ Generation int64 }
	Spec     struct {
		PodTemplate map[string]any
	}
	Status struct {
		ObservedGeneration        int64
		Progress, Reason, Message string
	}
}

func (w *world) cephOSD() (c cephOSD, err error) {
	return c, w.get(&c, cephOSDPath+cephOSDName)
}

// awaitUpdated waits until every OSD is as the present template says, and the rollout has ended.
func (w *world) awaitUpdated() error {
	return until(patience, func() error {
		c, err := w.cephOSD()
		if err != nil {
			return err
		}
		if c.Status.ObservedGeneration != c.Metadata.Generation || c.Status.Reason != "UpToDate" {
			return fmt.Errorf("%s: %s %s", c.Status.Progress, c.Status.Reason, c.Status.Message)
		}
		return nil
	})
}

// rolloutWords are what scenarios about rollouts are told in.
func (w *world) rolloutWords() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		// template WORD: the template becomes another one, of which WORD is in the environment.
		"template": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.changeTemplate(func(container map[string]any) error { return setUpdate(container, args[0]) }))
		},
		// break-template: its OSDs end as soon as they start. mend-template WORD: they do not any more.
		"break-template": func(ts *testscript.TestScript, _ bool, _ []string) {
			ts.Check(w.changeTemplate(func(container map[string]any) error {
				w.soundCommand, container["command"] = container["command"], []string{"/bin/false"}
				return nil
			}))
		},
		"mend-template": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.changeTemplate(func(container map[string]any) error {
				container["command"] = w.soundCommand
				return setUpdate(container, args[0])
			}))
		},
		// last-words: a pod of which the OSD fails says how its log ends, from the next template on.
		"last-words": func(ts *testscript.TestScript, _ bool, _ []string) {
			ts.Check(w.changeTemplate(func(container map[string]any) error {
				container["terminationMessagePolicy"] = "FallbackToLogsOnError"
				return nil
			}))
		},
		// rotate-keys: Ceph has a new key for each OSD, of which only Ceph knows. bring-keys OSD…: a person writes them to
		// the OSDs' disks.
		"rotate-keys": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(w.rotateKeys()) },
		"bring-keys": func(ts *testscript.TestScript, _ bool, args []string) {
			for _, osd := range args {
				ts.Check(w.bringKey(osd))
			}
		},
		// cephosd FIELD VALUE: sets a field of the spec; VALUE is JSON.
		"cephosd": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.patchCephOSD(map[string]any{args[0]: json.RawMessage(args[1])}))
		},
		// rollout REGEXP: how far it is, as `kubectl get cephosd` says: "3/12 Halted osd.3 …".
		"rollout": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 1 {
				ts.Fatalf("usage: rollout REGEXP")
			}
			ts.Check(w.eventually(patience, args[0], "kubectl", "-n", cephNamespace, "get", "cephosd", cephOSDName, "-o",
				"jsonpath={.status.progress} {.status.reason} {.status.message}"))
		},
		"updated": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(w.awaitUpdated()) },
	}
}

// rotateKeys gives each OSD a new key, in Ceph and where it runs: one that loses its session with a monitor would get
// no other one with the old key. What Ceph 16 cannot tell a running OSD, it finds when it is restarted.
func (w *world) rotateKeys() error {
	var g errgroup.Group
	g.SetLimit(4) // each of these commands waits for the monitors most of the time
	for osd := range 12 {
		g.Go(func() error { return w.rotateKey(fmt.Sprintf("osd.%d", osd)) })
	}
	return g.Wait()
}

func (w *world) rotateKey(name string) error {
	if err := w.newKey(name); err != nil {
		return err
	}
	key, err := w.command("ceph", "auth", "print-key", name).Output()
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.newKeyring(name)+".key", key, 0o600); err != nil {
		return err
	}
	_ = w.run("ceph", "tell", name, "rotate-key", "-i", w.newKeyring(name)+".key")
	return nil
}

// newKey gives an OSD a new key in Ceph, with the same rights. Before Ceph 20 a person has to do it in two steps.
func (w *world) newKey(name string) error {
	if err := w.run("ceph", "auth", "rotate", name); err != nil {
		rights := []string{"mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"}
		if err := w.run("ceph", "auth", "del", name); err != nil {
			return err
		}
		if err := w.run("ceph", append([]string{"auth", "get-or-create", name}, rights...)...); err != nil {
			return err
		}
	}
	keyring, err := w.command("ceph", "auth", "get", name).Output()
	if err != nil {
		return err
	}
	return os.WriteFile(w.newKeyring(name), keyring, 0o600)
}

func (w *world) newKeyring(osd string) string { return filepath.Join(w.dir, osd+".keyring") }

func (w *world) bringKey(osd string) error {
	keyring, err := os.ReadFile(w.newKeyring(osd))
	if err != nil {
		return err
	}
	disk := filepath.Join(w.env["LAB_HOME"], w.env["LAB_NAME"], "ceph", "osd-"+strings.TrimPrefix(osd, "osd."))
	return os.WriteFile(filepath.Join(disk, "keyring"), keyring, 0o600)
}

func setUpdate(container map[string]any, word string) error {
	env, _ := container["env"].([]any)
	for _, e := range env {
		if v, ok := e.(map[string]any); ok && v["name"] == "UPDATE" {
			v["value"] = word
			return nil
		}
	}
	return errors.New("the template has no variable UPDATE")
}

func (w *world) changeTemplate(change func(container map[string]any) error) error {
	c, err := w.cephOSD()
	if err != nil {
		return err
	}
	spec, _ := c.Spec.PodTemplate["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) != 1 {
		return fmt.Errorf("the template has %d containers, not one", len(containers))
	}
	container, _ := containers[0].(map[string]any)
	if err := change(container); err != nil {
		return err
	}
	return w.patchCephOSD(map[string]any{"podTemplate": c.Spec.PodTemplate})
}

func (w *world) patchCephOSD(spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(w.dir, "patch-*.json")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(patch); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return w.run("kubectl", strings.Fields(
		"-n "+cephNamespace+" patch cephosd "+cephOSDName+" --type merge --patch-file "+file.Name())...)
}
