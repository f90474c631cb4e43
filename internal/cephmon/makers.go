package cephmon

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// This file tells mons by who made them and who runs them.

// runBy is who runs a mon that has no Deployment. What is left of one that was deleted is nobody's.
func (w *world) runBy(mon string) string {
	pod := w.pod(w.isMon(mon))
	if pod == nil {
		return ""
	}
	switch owner := metav1.GetControllerOf(pod); {
	case owner == nil:
		return "a pod without a controller"
	case owner.Kind == "ReplicaSet":
		return ""
	default:
		return owner.Kind + " " + owner.Name
	}
}

// runByOthers warns of mons that lockkeeper counts and leaves alone.
func runByOthers(s monplan.Seen) (warnings []string) {
	byOwner := map[string][]string{}
	for _, m := range s.Mons {
		if m.RunBy != "" {
			byOwner[m.RunBy] = append(byOwner[m.RunBy], "mon."+m.Name)
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		warnings = append(warnings, fmt.Sprintf("%s of %s: lockkeeper counts what has no Deployment of its own, and does "+
			"not move, restart or replace it", strings.Join(byOwner[owner], ", "), owner))
	}
	return warnings
}

// fixed is what a mon that lockkeeper has made has from its beginning; nil: others have made it.
func (w *world) fixed(mon string, d *appsv1.Deployment) *monplan.Fixed {
	if d.Spec.Template.Labels[monspec.CephMonLabel] == "" {
		return nil
	}
	f := &monplan.Fixed{HostNetwork: d.Spec.Template.Spec.HostNetwork}
	if at := w.storeOf(mon).Path; at != "" {
		f.DataDir = path.Dir(at)
	}
	return f
}
