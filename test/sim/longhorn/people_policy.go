package longhorn

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// This file is what people do with Longhorn's settings, the admission policy, our budgets and the policy.

// Setting changes a setting of Longhorn's.
func (w *World) Setting(name, value string) {
	w.happens(func() {
		if w.settings[name] == value {
			return
		}
		w.tell("setting %s: %s", name, value)
		w.old = append(w.old, oldSetting{name, w.settings[name], time.Now()})
		w.settings[name] = value
		w.stir("Setting")
	})
}

// AutoscalerSetting and DrainPolicy change the two settings that decide.
func (w *World) AutoscalerSetting(on bool) { w.Setting(settingAutoscaler, strconv.FormatBool(on)) }

// DrainPolicy changes the setting node-drain-policy.
func (w *World) DrainPolicy(value string) { w.Setting(settingDrainPolicy, value) }

// OneWriter installs the admission policy, or takes it away.
func (w *World) OneWriter(on bool) {
	w.happens(func() {
		if w.oneWriter == on {
			return
		}
		w.tell("the admission policy is %s", map[bool]string{true: "installed", false: "deleted"}[on])
		w.oneWriter, w.handedOver = on, time.Now()
		if !w.emptied() {
			w.guarding = false
		}
	})
}

// Tamper has a person delete one of our budgets, or have it let go of everything.
func (w *World) Tamper(which int) {
	w.happens(func() {
		unmarked, marked := w.ours()
		b := unmarked
		if which%2 == 0 {
			b = marked
		}
		if b == nil {
			return
		}
		w.tampered[b.Name] = true
		if which/2%2 == 0 {
			w.dropBudget(b.Name, byPerson)
			return
		}
		b = b.DeepCopy()
		none := intstr.FromInt32(0)
		b.Spec.MinAvailable, b.Spec.MaxUnavailable = &none, nil
		_, err := w.putBudget(b, byPerson)
		if err != nil {
			panic(err) // the selector was valid before
		}
	})
}

// EditPolicy changes the policy.
func (w *World) EditPolicy(what string, change func(*v1alpha1.LonghornSpec)) {
	w.happens(func() {
		if w.policy == nil {
			return
		}
		w.tell("a person edits the policy: %s", what)
		next := w.policy.DeepCopy()
		change(next.Spec.Longhorn)
		w.putPolicy(next)
	})
}

// DeletePolicy has a person delete the policy.
func (w *World) DeletePolicy() {
	w.happens(func() {
		if w.policy == nil || w.policy.DeletionTimestamp != nil {
			return
		}
		w.tell("a person deletes the policy")
		next := w.policy.DeepCopy()
		now := metav1.Now()
		next.DeletionTimestamp = &now
		w.putPolicy(next)
	})
}
