package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file has OSDs run by other controllers than a Deployment's.

// runBy has an OSD's pod made by a controller of another kind, from the same template: its Deployment goes, the pod,
// which then nobody owns, is let go on a person's word, and the next one is the other controller's.
func (w *world) runBy(kind, osd string) error {
	name := "rook-ceph-osd-" + strings.TrimPrefix(osd, "osd.")
	kept := filepath.Join(w.dir, name+".json")
	if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
		out, err := w.command("kubectl", "-n", cephNamespace, "get", "deployment", name, "-o", "json").Output()
		if err != nil {
			return err
		}
		if err := os.WriteFile(kept, out, 0o600); err != nil {
			return err
		}
	}
	raw, err := os.ReadFile(kept)
	if err != nil {
		return err
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(raw, &d); err != nil {
		return err
	}
	if err := w.orphan(name, d.Spec.Selector.MatchLabels); err != nil {
		return err
	}
	manifest := filepath.Join(w.dir, name+".by.json")
	if raw, err = json.Marshal(ownerOf(kind, d)); err != nil {
		return err
	}
	if err := os.WriteFile(manifest, raw, 0o600); err != nil {
		return err
	}
	if err := w.run("kubectl", "create", "-f", manifest); err != nil {
		return err
	}
	if err := w.eventually(patience, "6 up", "ceph", "osd", "stat"); err != nil {
		return err
	}
	return w.eventually(patience, "^any node$", "kubectl", "-n", cephNamespace, "get", "maintenancepolicy", policyName,
		"-o", "jsonpath={.status.mayDrain}")
}

// orphan takes away who owns an OSD's pod, and then the pod.
func (w *world) orphan(name string, labels map[string]string) error {
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})
	for _, kind := range []string{"deployment", "replicaset", "statefulset", "daemonset"} {
		if err := w.run("kubectl", "-n", cephNamespace, "delete", kind, "-l", selector, "--cascade=orphan"); err != nil {
			return err
		}
	}
	pods := []string{"-n", cephNamespace, "get", "pods", "-l", selector, "-o"}
	if err := w.eventually(patience, `^none <none>$`, "kubectl", append(pods,
		`go-template={{range .items}}none {{with .metadata.ownerReferences}}owned{{else}}<none>{{end}}{{"\n"}}{{end}}`)...,
	); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := w.run("sh", "-c", fmt.Sprintf(`kubectl %s name | xargs kubectl -n %s delete`, strings.Join(pods, " "),
		cephNamespace)); err == nil {
		return fmt.Errorf("the pod of %s, which nobody owns, was deleted although nothing is open", name)
	}
	if err := w.run("sh", "-c", fmt.Sprintf(`lockkeeper -n %s restart $(kubectl %s name) --now --reason 'another owner'`,
		cephNamespace, strings.Join(pods, " "))); err != nil {
		return err
	}
	return w.eventually(patience, `^0$`, "sh", "-c", "kubectl "+strings.Join(pods, " ")+" name | wc -l")
}

// ownerOf is a controller that runs what a Deployment ran. It carries the template's labels, so that it is found by
// them.
func ownerOf(kind string, d appsv1.Deployment) any {
	meta := metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Labels: d.Spec.Template.Labels}
	apps := appsv1.SchemeGroupVersion.String()
	switch kind {
	case "StatefulSet":
		return appsv1.StatefulSet{
			TypeMeta: metav1.TypeMeta{APIVersion: apps, Kind: kind}, ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: d.Spec.Selector, Template: d.Spec.Template},
		}
	case "DaemonSet": // the template says on which node
		return appsv1.DaemonSet{
			TypeMeta: metav1.TypeMeta{APIVersion: apps, Kind: kind}, ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template},
		}
	}
	return appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: apps, Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Labels: d.Labels, Annotations: d.Annotations},
		Spec:       d.Spec,
	}
}
