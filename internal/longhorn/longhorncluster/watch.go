package longhorncluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/guard/longhornguard"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// Every fact about Longhorn is an object of Kubernetes, so a watch of these is all that there is to hear. It goes by a
// cache: what it tells is only that a look is worth while, and a look reads the API server itself.

// costs is how many times as long as a decision takes the next one has to wait: a busy installation of 500 nodes is not
// to keep a processor busy.
const costs = 5

// How soon a watch decides anew after a change, and how often while objects go on to change; and how often it tells
// that it is alive, or tries again to begin.
const (
	together  = 5 * time.Millisecond
	settle    = 50 * time.Millisecond
	beatEvery = 5 * time.Second
	syncing   = 30 * time.Second
)

// What can wait is told after a while, in which it may be over, and not too often: volumes are attached and detached
// all the time, and each look costs the keeper some events of its history.
const (
	restsFor = 2 * time.Second
	restsOff = 20 * time.Second
)

// Watch implements activities.StorageCluster. It returns when another decision would be made than when it began.
func (c *cluster) Watch(
	ctx context.Context, in activities.Watching, beat func(activities.Watched),
) (activities.Watched, error) {
	for {
		w, err := c.caches.of(ctx, c.policy.Namespace)
		if err == nil {
			return c.watch(ctx, w, in, beat)
		}
		now := activities.Watched{Unavailable: err.Error(), Fingerprint: "unavailable"}
		if now.News(in.Last) {
			return now, nil
		}
		beat(in.Last)
		select {
		case <-ctx.Done():
			return in.Last, ctx.Err()
		case <-time.After(beatEvery):
		}
	}
}

func (c *cluster) watch(
	ctx context.Context, w *watched, in activities.Watching, beat func(activities.Watched),
) (activities.Watched, error) {
	alive := time.NewTicker(beatEvery)
	defer alive.Stop()
	known, isKnown := w.toldBy(in.Last.Fingerprint)
	var due time.Time // when what waits is told; zero: nothing does
	for {
		began := time.Now()
		changed := w.changed()
		s, err := c.look(ctx, w.reader, longhorn.Turns{})
		if err != nil {
			return in.Last, err
		}
		s.missed = w.missed(s)
		now := activities.Watched{Fingerprint: s.fingerprint()}
		switch {
		case !now.News(in.Last):
			due = time.Time{}
		case isKnown && s.canWait(known) && due.IsZero():
			due = w.nextRest(began)
		case isKnown && s.canWait(known) && began.Before(due):
		default:
			if isKnown {
				now.Opens = s.opens(known)
			}
			w.tells(s, isKnown && s.canWait(known))
			return now, nil
		}
		ended := time.Now()
		rest := timeUntil(due)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return in.Last, ctx.Err()
			case <-alive.C:
				beat(in.Last)
			case <-rest:
				waiting = false
			case <-changed:
				waiting = false
			}
		}
		select { // what belongs together comes together, and looks take a part of the time
		case <-ctx.Done():
		case <-time.After(max(together, time.Until(ended.Add(max(settle, costs*ended.Sub(began)))))):
		}
	}
}

// timeUntil fires at a time; never: it is zero.
func timeUntil(at time.Time) <-chan time.Time {
	if at.IsZero() {
		return nil
	}
	return time.After(time.Until(at))
}

// canWait tells whether whoever knows of another sight need not know of this one at once.
func (s sight) canWait(known known) bool {
	return reflect.DeepEqual(known.managers, s.managers()) && known.decision.Waits(s.decision) &&
		!slices.ContainsFunc(s.missed, func(node string) bool { return !slices.Contains(known.missed, node) })
}

// opens names the nodes that may leave, and could not as far as was known.
func (s sight) opens(known known) string {
	was := map[string]longhorn.State{}
	for _, n := range known.decision.Nodes {
		was[n.Node] = n.State
	}
	var now []string
	for _, n := range s.decision.Nodes {
		if n.State == longhorn.Open && was[n.Node] != longhorn.Open {
			now = append(now, n.Node)
		}
	}
	return strings.Join(now, ", ")
}

// fingerprint stands for all that a decision says, and why.
func (s sight) fingerprint() string {
	said, err := json.Marshal(struct {
		Nodes    []longhorn.NodeVerdict
		Managers []longhorn.Verdict
		Running  any
		Faults   []longhorn.Fault
		Missed   []string `json:",omitempty"`
	}{s.decision.Nodes, s.decision.Managers, s.managers(), s.decision.Faults, s.missed})
	if err != nil {
		return err.Error() // cannot happen with these types
	}
	sum := sha256.Sum256(said)
	return hex.EncodeToString(sum[:12])
}

// NewCache makes a cache of the objects of one namespace, and of all nodes.
type NewCache func(namespace string) (cache.Cache, error)

// caches has one cache for each namespace that is watched, for as long as the process lives.
type caches struct {
	make  NewCache
	ctx   context.Context //nolint:containedctx // that of the caches, not of a call
	close context.CancelFunc

	mu sync.Mutex
	by map[string]*watched
}

func newCaches(newCache NewCache) *caches {
	c := &caches{make: newCache, by: map[string]*watched{}}
	c.ctx, c.close = context.WithCancel(context.Background())
	return c
}

// watched is a cache that is kept, and who is to hear of its changes.
type watched struct {
	reader *Reader
	mu     sync.Mutex
	next   chan struct{}
	told   known
	rested time.Time // when something was told that could wait
	// held are the nodes that stay and from which autoscalers were held back once they did; nil: not known.
	held map[string]bool
}

// known is what was told last.
type known struct {
	fingerprint string
	decision    longhorn.Decision
	managers    map[string]longhornguard.Managers
	missed      []string
}

// toldBy is what was told by a fingerprint. A worker that has just begun has told nothing.
func (w *watched) toldBy(fingerprint string) (k known, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told, fingerprint != "" && w.told.fingerprint == fingerprint
}

// tells takes note of what is told.
func (w *watched) tells(s sight, couldWait bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = known{s.fingerprint(), s.decision, s.managers(), s.missed}
	if couldWait {
		w.rested = time.Now()
	}
}

// missed lists the nodes that lack what held autoscalers back from them. From one that stays since a moment ago they
// are about to be held back anyway; of a process that has just begun nobody knows since when.
func (w *watched) missed(s sight) (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := map[string]bool{}
	for _, n := range s.decision.Nodes {
		was, is := w.held == nil || w.held[n.Node], !slices.Contains(s.unheld, n.Node)
		if n.Stay && was && !is {
			names = append(names, n.Node)
		}
		held[n.Node] = n.Stay && (was || is)
	}
	w.held = held
	return names
}

// nextRest is when something is told that can wait from now on.
func (w *watched) nextRest(now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := now.Add(restsFor)
	if next := w.rested.Add(restsOff); next.After(at) {
		at = next
	}
	return at
}

// changed is closed at the next change.
func (w *watched) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

func (w *watched) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.next)
	w.next = make(chan struct{})
}

// of is the cache of a namespace, which is begun if there is none.
func (c *caches) of(ctx context.Context, namespace string) (*watched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.by[namespace]; w != nil {
		return w, nil
	}
	w, err := c.begin(ctx, namespace)
	if err == nil {
		c.by[namespace] = w
	}
	return w, err
}

func (c *caches) begin(ctx context.Context, namespace string) (*watched, error) {
	made, err := c.make(namespace)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", namespace, err)
	}
	life, stop := context.WithCancel(c.ctx)
	w := &watched{reader: New(made, namespace), next: make(chan struct{})}
	go func() { _ = made.Start(life) }()
	if err := w.listen(ctx, made); err != nil {
		stop()
		return nil, fmt.Errorf("watch %s: %w", namespace, err)
	}
	context.AfterFunc(c.ctx, stop)
	return w, nil
}

// listen has a cache tell of its changes.
func (w *watched) listen(ctx context.Context, of cache.Cache) error {
	ctx, done := context.WithTimeout(ctx, syncing)
	defer done()
	for _, o := range watchedObjects() {
		informer, err := of.GetInformer(ctx, o)
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { w.tell() }, DeleteFunc: func(any) { w.tell() },
				UpdateFunc: func(before, now any) {
					if matters(before, now) {
						w.tell()
					}
				},
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// matters tells whether an update may change a decision. Kubelets renew the status of their nodes all the time.
func matters(before, now any) bool {
	was, isNode := before.(*corev1.Node)
	is, still := now.(*corev1.Node)
	if !isNode || !still {
		return true
	}
	return !reflect.DeepEqual(node(was, nil), node(is, nil)) || !kube.SameHolds(was, is)
}

// watchedObjects are one of each kind that a decision depends on.
func watchedObjects() []client.Object {
	out := []client.Object{&corev1.Node{}, &corev1.Pod{}}
	for _, kind := range []string{"Setting", "Replica", "Volume", "InstanceManager"} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(group.WithKind(kind))
		out = append(out, o)
	}
	return out
}
