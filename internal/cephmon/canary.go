package cephmon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file finds a newcomer its node, zone and volume, by way of a canary. Nothing of it is a mon yet.

// free: no mon but the one that is replaced is in the zone.
func (x act) free(zone string) bool {
	for i := range x.deployments {
		d := &x.deployments[i]
		mon := d.Spec.Template.Labels[kube.MonLabel]
		if !x.isMon(mon)(d.Spec.Template.Labels) || mon == x.work.Old || mon == x.work.Newcomer {
			continue
		}
		if zone == d.Annotations[monspec.ZoneAnnotation] || zone == x.zone(x.node(x.nodeOf(mon))) {
			return false
		}
	}
	return true
}

// boundCanaryAfter is how long a canary with a volume may find no place, until it begins anew without it, and perhaps
// in another zone, or on another node than the one whose disk the volume is.
const boundCanaryAfter = 2 * time.Minute

// schedule makes the canary. One that is there waits for the scheduler, which needs no help.
func (x act) schedule(ctx context.Context) error {
	canary, pod := x.deployment(isCanary(x.work.Newcomer)), x.pod(isCanary(x.work.Newcomer))
	if canary == nil {
		return x.putCanary(ctx, "")
	}
	claim := x.claim(monspec.ResourceName(x.work.Newcomer))
	if canary.Annotations[monspec.AvoidAnnotation] != monspec.Avoided(x.work.Avoid) && (pod == nil || !running(pod)) {
		return x.dropCanary(ctx, x.work.Newcomer) // an address has rested, and the next look makes it anew
	}
	zoned := len(x.set.Spec.Zones) > 0
	if !zoned && claim == nil {
		return x.putClaim(ctx, "") // it was dropped
	}
	stuck := pod != nil && !running(pod) && time.Since(pod.CreationTimestamp.Time) > boundCanaryAfter
	switch {
	case !stuck || claim == nil:
		return nil
	case !zoned && (claim.Spec.VolumeName == "" || time.Since(claim.CreationTimestamp.Time) <= boundCanaryAfter):
		return nil // its volume is made where the canary goes
	case zoned && claim.Annotations[monspec.ZoneAnnotation] == "":
		return nil
	}
	if zoned { // the canary first: with a claim that is gone it would wait for ever
		if err := x.putCanary(ctx, ""); err != nil {
			return err
		}
	}
	return x.dropClaim(ctx, claim)
}

// putCanary makes the canary, or makes it once more with what is known of it now.
func (x act) putCanary(ctx context.Context, zone string) error {
	want := x.set.Canary(x.newcomer(zone))
	if zone == "" && len(x.set.Spec.Zones) == 0 {
		if err := x.putClaim(ctx, ""); err != nil { // without zones the canary carries it
			return err
		}
	}
	deployments := x.typed.AppsV1().Deployments(x.namespace())
	_, err := deployments.Create(ctx, want, metav1.CreateOptions{FieldManager: kube.FieldOwner})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": want.Spec.Template}})
	if err != nil {
		return err
	}
	_, err = deployments.Patch(ctx, want.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: kube.FieldOwner})
	return err
}

// claimVolume makes the claim in the zone where the canary runs, and has the canary be its first consumer. A claim that
// was made for another zone, where the canary ran before, is nobody's: the newcomer was never started.
func (x act) claimVolume(ctx context.Context) error {
	if x.work.Zone == "" || !x.set.Storage(x.work.Zone).Claim {
		return nil // the canary has it, or none is needed
	}
	c := x.claim(monspec.ResourceName(x.work.Newcomer))
	if c != nil && c.Annotations[monspec.ZoneAnnotation] != x.work.Zone {
		return x.dropClaim(ctx, c)
	}
	if err := x.putClaim(ctx, x.work.Zone); err != nil {
		return err
	}
	canary := x.deployment(isCanary(x.work.Newcomer))
	if canary != nil && slices.ContainsFunc(canary.Spec.Template.Spec.Volumes, isClaim) {
		return nil
	}
	return x.putCanary(ctx, x.work.Zone)
}

func (x act) putClaim(ctx context.Context, zone string) error {
	claim := x.set.Claim(x.work.Newcomer, zone)
	if claim == nil {
		return nil
	}
	_, err := x.typed.CoreV1().PersistentVolumeClaims(x.namespace()).Create(ctx, claim,
		metav1.CreateOptions{FieldManager: kube.FieldOwner})
	if apierrors.IsAlreadyExists(err) {
		if c := x.claim(claim.Name); c == nil || c.Labels[kube.MonLabel] != x.work.Newcomer ||
			c.Labels[monspec.CephMonLabel] != x.set.Name {
			return fmt.Errorf("PersistentVolumeClaim %s: exists, and is not of CephMon %s", claim.Name, x.set.Name)
		}
		return nil
	}
	return err
}

// dropCanary deletes the canary. Its pod may be there for a while; the mon's pod waits for what it needs.
func (x act) dropCanary(ctx context.Context, mon string) error {
	return client.IgnoreNotFound(x.typed.AppsV1().Deployments(x.namespace()).Delete(ctx,
		monspec.CanaryName(mon), background()))
}
