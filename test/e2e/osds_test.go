package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// osdWords are what scenarios about the pods of a CephOSD are told in.
func (w *world) osdWords() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		// break-disk OSD: it runs on, and does not start again, whatever its pod. mend-disk OSD: it does.
		"break-disk": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.rename(args[0], "keyring", "keyring.lost"))
		},
		"mend-disk": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.rename(args[0], "keyring.lost", "keyring"))
		},
		// as-original OSD: its pod becomes one such as the original operator made. Nobody else may look after it meanwhile.
		"as-original": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.asOriginal(args[0])) },
		// refusals REGEXP: the status lists something in the spec that makes no sense: "FIELD VALUE: MESSAGE".
		"refusals": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.eventually(patience, args[0], "kubectl", "-n", cephNamespace, "get", "cephosd", cephOSDName, "-o",
				`jsonpath={range .status.refused[*]}{.field} {.value}: {.message}{"\n"}{end}`))
		},
		// told REGEXP: an event of the CephOSD in this scenario says it: "Warning Halted osd.3 …".
		"told": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.awaitEvent(args[0])) },
	}
}

// podOf is the pod of an OSD, osd.3.
func (w *world) podOf(osd string) (pod, error) {
	pods, err := w.pods()
	if err != nil {
		return pod{}, err
	}
	i := slices.IndexFunc(pods, func(p pod) bool { return "osd."+p.Metadata.Labels[podspec.IDLabel] == osd })
	if i < 0 {
		return pod{}, fmt.Errorf("%s has no pod", osd)
	}
	return pods[i], nil
}

// rename renames a file in the store of an OSD. A neighbour does it, since the OSD's own pod may be the one that does
// not start.
func (w *world) rename(osd, from, to string) error {
	own, err := w.podOf(osd)
	if err != nil {
		return err
	}
	pods, err := w.pods()
	if err != nil {
		return err
	}
	host, store := own.Metadata.Annotations[podspec.HostAnnotation], own.Metadata.Annotations[podspec.DataAnnotation]
	i := slices.IndexFunc(pods, func(p pod) bool {
		return p.Metadata.Annotations[podspec.HostAnnotation] == host && p.Metadata.Name != own.Metadata.Name
	})
	if i < 0 {
		return fmt.Errorf("%s has no neighbour on %s that could reach its store", osd, host)
	}
	return w.run("kubectl", "-n", cephNamespace, "exec", pods[i].Metadata.Name, "--", "mv", path.Join(store, from),
		path.Join(store, to))
}

// asOriginal replaces the pod of an OSD by one that has the name, the annotations, the labels and the owner that the
// original operator would have given it.
func (w *world) asOriginal(osd string) error {
	now, err := w.podOf(osd)
	if err != nil {
		return err
	}
	var p struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	if err := w.get(&p, podsPath+"/"+now.Metadata.Name); err != nil {
		return err
	}
	var owner struct{ Metadata struct{ UID string } }
	if err := w.get(&owner, cephOSDPath+cephOSDName); err != nil {
		return err
	}
	annotations := map[string]string{podspec.StateAnnotation: string(podspec.UpToDate)}
	for _, a := range []string{podspec.HostAnnotation, podspec.DataAnnotation, podspec.HashAnnotation} {
		annotations[a] = now.Metadata.Annotations[a]
	}
	labels := map[string]string{}
	for name, value := range now.Metadata.Labels {
		if name != podspec.IDLabel && !strings.HasPrefix(name, podspec.FailureDomainLabel) {
			labels[name] = value
		}
	}
	p.Metadata = map[string]any{
		"namespace": cephNamespace, "labels": labels, "annotations": annotations,
		"name": strings.Join([]string{
			"osd", annotations[podspec.HostAnnotation],
			path.Base(annotations[podspec.DataAnnotation]), "x7k2p",
		}, "-"),
		"ownerReferences": []map[string]any{{
			"apiVersion": "ceph.elemental.net/v1alpha1", "kind": "CephOSD", "name": cephOSDName, "uid": owner.Metadata.UID,
			"controller": true, "blockOwnerDeletion": true,
		}},
	}
	delete(p.Spec, "nodeName")
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := w.run("kubectl", "-n", cephNamespace, "delete", "pod", now.Metadata.Name, "--wait"); err != nil {
		return err
	}
	c := w.command("kubectl", "create", "-f", "-")
	c.Stdin = strings.NewReader(string(body))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("create the pod: %w: %s", err, out)
	}
	return nil
}

// awaitEvent waits for an event of the CephOSD.
func (w *world) awaitEvent(pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	return until(patience, func() error {
		said, err := w.events()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(said, re.MatchString) {
			return errors.New("its events are:\n" + strings.Join(said, "\n"))
		}
		return nil
	})
}

// events are those of the CephOSD since the scenario began.
func (w *world) events() (said []string, err error) {
	var list struct {
		Items []struct {
			Metadata              struct{ CreationTimestamp time.Time }
			Type, Reason, Message string
		}
	}
	err = w.read(&list, "kubectl", "-n", cephNamespace, "get", "events", "--field-selector", "involvedObject.kind=CephOSD",
		"-o", "json")
	for _, e := range list.Items {
		if !e.Metadata.CreationTimestamp.Before(w.scenarioBegan.Truncate(time.Second)) {
			said = append(said, strings.Join([]string{e.Type, e.Reason, e.Message}, " "))
		}
	}
	return said, err
}
