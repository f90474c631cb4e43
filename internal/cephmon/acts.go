package cephmon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Do carries out the first act of a step that was just decided, and that is written down. It changes one thing and does
// not wait for what follows from it, but a moment for a mon to come: the next look says how far that is. An answer of
// no is a reason why nothing was done; an error means that nobody knows.
func (m *Mons) Do(ctx context.Context, ref Ref, step monplan.Step) (storage.Answer, error) {
	w, err := m.read(ctx, ref)
	if err != nil {
		return storage.Answer{}, err
	}
	x := act{Mons: m, world: w, work: *step.Work, takes: step.Takes}
	switch first := step.Acts[0]; first.Do {
	case monplan.Schedule:
		return yes(x.schedule(ctx))
	case monplan.ClaimVolume:
		return yes(x.claimVolume(ctx))
	case monplan.DropCanary:
		return yes(x.dropCanary(ctx, first.Mon))
	case monplan.Start:
		return x.start(ctx)
	case monplan.AwaitQuorum:
		return yes(x.awaitQuorum(ctx, first.Mon))
	case monplan.SaveEndpoints:
		return x.saveEndpoints(ctx)
	case monplan.RemoveMon:
		return x.removeMon(ctx, first.Mon)
	case monplan.StopMon:
		return x.stopMon(ctx, first.Mon)
	case monplan.RestartMon:
		return x.restartMon(ctx, first.Mon)
	case monplan.DropTraces:
		return x.dropTraces(ctx, first.Mon)
	default:
		return storage.Answer{}, fmt.Errorf("act %q is not known", first.Do)
	}
}

// act is one act on what was read a moment ago.
type act struct {
	*Mons
	*world
	work monplan.Work
	// takes is the living mon for which the lease is held; "": it is not.
	takes string
}

func yes(err error) (storage.Answer, error) { return storage.Answer{OK: err == nil}, err }

func no(format string, args ...any) storage.Answer {
	return storage.Answer{Reason: fmt.Sprintf(format, args...)}
}

func (x act) namespace() string { return x.set.Namespace }

// newcomer is what the mon is made of, as far as it is known yet.
func (x act) newcomer(zone string) monspec.Newcomer {
	n := monspec.Newcomer{Name: x.work.Newcomer, Zone: zone, Avoid: x.work.Avoid}
	if x.work.Kind != monplan.Add && x.work.Kind != monplan.Migrate {
		n.Instead = x.work.Old
	}
	for _, z := range x.set.Spec.Zones {
		if zone == "" && x.free(z.Name) || z.Name == zone {
			n.Zones = append(n.Zones, z.Name)
		}
	}
	return n
}

// background deletes a Deployment at once, and its pods after it: one on a node that does not answer stays for ever.
func background() metav1.DeleteOptions {
	policy := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

// start makes Service and Deployment of the newcomer. From here on it may be in the monmap, whatever is seen of it.
func (x act) start(ctx context.Context) (storage.Answer, error) {
	c, err := x.ceph(ctx, storage.ClusterKey{Namespace: x.namespace(), Name: x.policy.Name})
	if err != nil {
		return storage.Answer{}, err
	}
	q, err := c.ProvedQuorum(ctx)
	if err != nil {
		return storage.Answer{}, err
	}
	if _, known := q.Find(x.work.Newcomer); !known {
		if a := x.quorum(q).MayJoin(x.work.Newcomer); !a.OK { // what Ceph remembers of the quorum does not tell
			return a, nil
		}
		if a, err := x.mayHave(ctx, q); err != nil || !a.OK {
			return a, err
		}
		if a, err := c.OKToAddMon(ctx); err != nil || !a.OK {
			return a, err
		}
	}
	pinned := !x.set.Storage(x.work.Zone).Claim || x.set.Spec.PodTemplate.HostNetwork
	if pinned && x.node(x.work.Node) == nil {
		return no("node %q of mon.%s is gone", x.work.Node, x.work.Newcomer), nil
	}
	ip, err := x.address(ctx)
	if err != nil {
		return storage.Answer{}, err
	}
	if slices.Contains(x.work.Avoid, x.work.Node) && x.set.Spec.PodTemplate.HostNetwork {
		return no("the address of node %s was another mon's a short while ago", x.work.Node), nil
	}
	n := x.newcomer(x.work.Zone)
	n.Avoid = nil // it runs where the canary has run
	n.FSID, n.Address, n.Hosts = q.MonMap.FSID, monspec.AddressOf(ip), hosts(q)
	if pinned {
		n.Node, n.Host = x.work.Node, x.node(x.work.Node).Labels[corev1.LabelHostname]
	}
	d, err := x.set.Deployment(n)
	if err != nil {
		return storage.Answer{}, err
	}
	_, err = x.typed.AppsV1().Deployments(x.namespace()).Create(ctx, d,
		metav1.CreateOptions{FieldManager: kube.FieldOwner})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return yes(err)
}

// A mon comes into quorum seconds after its start. To ask Ceph for that takes a millisecond, and a look at everything a
// dozen requests. Only such a look sees what else has become of the mons.
const (
	asksForQuorum = 100 * time.Millisecond
	mostForQuorum = 5 * time.Second
)

// awaitQuorum waits for a moment until Ceph says that a mon is in quorum, which the next look has it prove.
func (x act) awaitQuorum(ctx context.Context, mon string) error {
	c, err := x.ceph(ctx, storage.ClusterKey{Namespace: x.namespace(), Name: x.policy.Name})
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, asksForQuorum, mostForQuorum, true, func(ctx context.Context) (bool, error) {
		q, err := c.QuorumStatus(ctx)
		return slices.Contains(q.QuorumNames, mon), err
	})
	if wait.Interrupted(err) {
		return nil
	}
	return err
}

// hosts is where the living mons are, as mon_host has it.
func hosts(q ceph.QuorumStatus) string {
	var addresses []string
	for _, m := range q.MonMap.Mons {
		if slices.Contains(q.QuorumNames, m.Name) {
			addresses = append(addresses, m.Address())
		}
	}
	return strings.Join(addresses, ",")
}

// address is that of the newcomer in the monmap: its Service's, which it keeps when its pod moves, or with hostNetwork
// its node's.
func (x act) address(ctx context.Context) (string, error) {
	if x.set.Spec.PodTemplate.HostNetwork {
		if ip := nodeIP(x.node(x.work.Node)); ip != "" {
			return ip, nil
		}
		return "", fmt.Errorf("node %s has no internal address", x.work.Node)
	}
	services := x.typed.CoreV1().Services(x.namespace())
	s, err := services.Create(ctx, x.set.Service(x.work.Newcomer), metav1.CreateOptions{FieldManager: kube.FieldOwner})
	if apierrors.IsAlreadyExists(err) {
		s, err = services.Get(ctx, monspec.ResourceName(x.work.Newcomer), metav1.GetOptions{})
	}
	if err != nil {
		return "", err
	}
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return "", fmt.Errorf("Service %s: has the address %q: %w", s.Name, s.Spec.ClusterIP, err)
	}
	return ip.String(), nil
}

func (m *Mons) hasService(ctx context.Context, w *world, mon string) (bool, error) {
	if mon == "" {
		return false, nil
	}
	_, err := m.typed.CoreV1().Services(w.set.Namespace).Get(ctx, monspec.ResourceName(mon), metav1.GetOptions{})
	return err == nil, client.IgnoreNotFound(err)
}

// saveEndpoints tells everybody where the mons are: by a fresh and proved monmap, and without a newcomer that was never
// in quorum.
func (x act) saveEndpoints(ctx context.Context) (storage.Answer, error) {
	q, err := x.proved(ctx, x.world)
	if err != nil {
		return storage.Answer{}, err
	}
	seen := monplan.Seen{Mons: x.mons(q), Work: &x.work}
	mapping := struct {
		Node map[string]map[string]string `json:"node"`
	}{map[string]map[string]string{}}
	var data []string
	for _, name := range seen.EndpointsToSave() {
		mon, _ := q.Find(name)
		data = append(data, name+"="+endpoint(mon))
		for _, m := range seen.Mons {
			if m.Name == name && m.Node != "" {
				mapping.Node[name] = map[string]string{"Name": m.Node, "Hostname": x.hostname(m.Node), "Address": ""}
			}
		}
	}
	text, err := json.Marshal(mapping)
	if err != nil {
		return storage.Answer{}, err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{
		x.endpointsKey(): strings.Join(data, ","), "mapping": string(text),
		"maxMonId": strconv.Itoa(x.nextID(seen.Mons, 0) - 1),
	}})
	if err != nil {
		return storage.Answer{}, err
	}
	// The endpoints come last: the act is done when they name the mon.
	if err := x.saveForClients(ctx, q, seen.EndpointsToSave()); err != nil {
		return storage.Answer{}, err
	}
	_, err = x.typed.CoreV1().ConfigMaps(x.namespace()).Patch(ctx, x.endpoints.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: kube.FieldOwner})
	return yes(err)
}

// endpoint is one address of a mon, as Rook writes it: that of the older protocol if the mon serves it.
func endpoint(m ceph.Mon) string {
	address := ""
	for _, a := range m.Public.Addresses {
		if address == "" || a.Type == "v1" {
			address = a.Address
		}
	}
	return address
}

// removeMon takes a mon out of the monmap. Ceph is asked once more, and answers by the quorum that it remembers; what
// it cannot know yet, a commit right before the removal tells. If the quorum is lost right then, the removal must not
// be carried out when it is back: another mon may be dead by then, and this one live.
func (x act) removeMon(ctx context.Context, mon string) (storage.Answer, error) {
	c, closes, err := x.clusters.Apart(ctx, storage.ClusterKey{Namespace: x.namespace(), Name: x.policy.Name})
	if err != nil {
		return storage.Answer{}, err
	}
	defer closes()
	if a, err := c.OKToRemoveMon(ctx, mon); err != nil || !a.OK && a.Refusal != storage.RefusalUnknown {
		return a, err
	}
	q, err := c.ProvedQuorum(ctx)
	if err != nil {
		return storage.Answer{}, err
	}
	if _, there := q.Find(mon); !there {
		return storage.Answer{OK: true}, nil
	}
	// What was decided on may have changed a moment ago: a dead mon is back, or the successor is gone.
	lives := slices.Contains(q.QuorumNames, mon) && mon == x.work.Old
	if lives && x.takes == "" {
		return no("mon.%s is in quorum again", mon), nil
	}
	if x.work.Kind == monplan.Remove && lives && len(q.MonMap.Mons) <= int(x.set.Spec.Count) {
		return no("mon.%s is not superfluous any more: the spec says %d mons", mon, x.set.Spec.Count), nil
	}
	if mon == x.work.Newcomer && slices.Contains(q.QuorumNames, mon) {
		return no("mon.%s came into quorum after all", mon), nil
	}
	if x.work.Kind == monplan.Migrate && mon == x.work.Old && !slices.Contains(q.QuorumNames, x.work.Newcomer) {
		return no("mon.%s is not in quorum any more", x.work.Newcomer), nil
	}
	if a := x.hasPlace(); mon == x.work.Old && !a.OK {
		return a, nil
	}
	may := x.quorum(q).MayRemove
	switch {
	case lives && x.work.Kind == monplan.OneLess:
		may = x.quorum(q).MayOneLess
	case lives:
		may = x.quorum(q).MayReplace
	}
	if a := may(mon); !a.OK {
		return a, nil
	}
	return yes(c.RemoveMon(ctx, mon))
}

// hasPlace answers whether what was made ready for the newcomer still is, where the old mon leaves first. Whoever has
// waited for the lease decided that a while ago. A newcomer that was started has its place: the old mon had left then,
// and has added itself once more, since its node came back with an empty disk before its pod was ended.
func (x act) hasPlace() storage.Answer {
	now := x.world.work(x.work, "")
	if now.OldFirst() && now.Started.IsZero() && (!now.Canary || !now.Scheduled || !now.Claimed) {
		return no("mon.%s has no node any more, or no volume", x.work.Newcomer)
	}
	return storage.Answer{OK: true}
}

// quorum is what the arithmetic of majorities needs.
func (x act) quorum(q ceph.QuorumStatus) quorum.Map {
	return monplan.Seen{Mons: x.mons(q)}.Monmap()
}

// stopMon deletes the Deployment and the Service of a mon that has left the monmap. Its storage stays.
func (x act) stopMon(ctx context.Context, mon string) (storage.Answer, error) {
	q, err := x.proved(ctx, x.world)
	if err != nil {
		return storage.Answer{}, err
	}
	if _, there := q.Find(mon); there { // it has joined since it was decided that it goes
		return no("mon.%s is in the monmap", mon), nil
	}
	if err := x.dropService(ctx, mon); err != nil {
		return storage.Answer{}, err
	}
	d := x.deployment(x.isMon(mon))
	if d == nil { // it goes last: without it the act counts as done
		return storage.Answer{OK: true}, nil
	}
	return yes(client.IgnoreNotFound(x.typed.AppsV1().Deployments(x.namespace()).Delete(ctx, d.Name, onlyThis(d))))
}

// onlyThis deletes what was read, and nothing that has its name meanwhile.
func onlyThis(d *appsv1.Deployment) metav1.DeleteOptions {
	options := background()
	options.Preconditions = &metav1.Preconditions{UID: &d.UID}
	return options
}

func (x act) dropService(ctx context.Context, mon string) error {
	return client.IgnoreNotFound(x.typed.CoreV1().Services(x.namespace()).Delete(ctx, monspec.ResourceName(mon),
		metav1.DeleteOptions{}))
}

// restartMon gives a mon the template of the spec. Its store, its address and its zone stay as they are.
func (x act) restartMon(ctx context.Context, mon string) (storage.Answer, error) {
	d := x.deployment(x.isMon(mon))
	if d == nil {
		return no("mon.%s has no Deployment", mon), nil
	}
	c, err := x.ceph(ctx, storage.ClusterKey{Namespace: x.namespace(), Name: x.policy.Name})
	if err != nil {
		return storage.Answer{}, err
	}
	q, err := c.QuorumStatus(ctx)
	if err != nil {
		return storage.Answer{}, err
	}
	if a, err := x.mayHave(ctx, q); err != nil || !a.OK {
		return a, err
	}
	if !x.policy.Spec.Ceph.AllowMonQuorumLoss {
		if a, err := c.OKToStopMon(ctx, mon); err != nil || !a.OK {
			return a, err
		}
		// Ceph's own answer is about the quorum that it remembers: another mon may have died since the look.
		if q, err = c.ProvedQuorum(ctx); err != nil {
			return storage.Answer{}, err
		}
		if a := x.quorum(q).Without(mon).EveryZoneUp(); !a.OK {
			return a, nil
		}
	}
	patch, err := x.set.Restart(d)
	if err != nil {
		return storage.Answer{}, err
	}
	_, err = x.typed.AppsV1().Deployments(x.namespace()).Patch(ctx, d.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: kube.FieldOwner})
	return yes(err)
}

// dropTraces deletes what a newcomer has that was never in quorum.
func (x act) dropTraces(ctx context.Context, mon string) (storage.Answer, error) {
	if x.deployment(x.isMon(mon)) != nil || x.work.Joined || mon != x.work.Newcomer {
		return no("mon.%s has a Deployment, or was in quorum: its claim stays", mon), nil
	}
	if err := x.dropService(ctx, mon); err != nil {
		return storage.Answer{}, err
	}
	return yes(x.dropClaim(ctx, x.claim(monspec.ResourceName(mon))))
}

// dropClaim deletes a claim that lockkeeper has made for a newcomer.
func (x act) dropClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c == nil || c.Labels[monspec.CephMonLabel] != x.set.Name || c.Labels[kube.MonLabel] != x.work.Newcomer {
		return nil
	}
	return client.IgnoreNotFound(x.typed.CoreV1().PersistentVolumeClaims(x.namespace()).Delete(ctx, c.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}}))
}
