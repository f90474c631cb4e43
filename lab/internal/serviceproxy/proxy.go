package serviceproxy

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// proxy listens wherever a Service has somebody to serve it.
type proxy struct {
	services, pods cache.SharedIndexInformer
	changed        chan struct{}
	fronts         map[string]*front // by address
	refused        map[string]string // why nobody can listen at an address, as far as that was said
}

// Start serves all Services until ctx ends.
func Start(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &proxy{
		services: factory.Core().V1().Services().Informer(), pods: factory.Core().V1().Pods().Informer(),
		changed: make(chan struct{}, 1), fronts: map[string]*front{}, refused: map[string]string{},
	}
	wake := func(any) {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: wake, DeleteFunc: wake, UpdateFunc: func(_, o any) { wake(o) },
	}
	for _, informer := range []cache.SharedIndexInformer{p.services, p.pods} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	go p.run(ctx, factory)
	return nil
}

// retry is after how long an address is tried again that somebody else has.
const retry = 500 * time.Millisecond

func (p *proxy) run(ctx context.Context, factory informers.SharedInformerFactory) {
	factory.WaitForCacheSync(ctx.Done()) // before that every Service seems to have no pods
	for ctx.Err() == nil {
		var again <-chan time.Time
		if !p.listen(ctx, routes(list[*corev1.Service](p.services), list[*corev1.Pod](p.pods))) {
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
		case <-p.changed:
		case <-again:
		}
	}
	for _, f := range p.fronts {
		f.listener.Close()
	}
}

func list[T any](informer cache.SharedIndexInformer) []T {
	var all []T
	for _, o := range informer.GetStore().List() {
		all = append(all, o.(T))
	}
	return all
}

// listen brings the listeners to what the routes say, and tells whether it could listen everywhere.
func (p *proxy) listen(ctx context.Context, want map[string][]string) (everywhere bool) {
	for at, f := range p.fronts {
		if want[at] == nil {
			f.listener.Close()
			delete(p.fronts, at)
		}
	}
	everywhere = true
	for _, at := range slices.Sorted(maps.Keys(want)) {
		if f := p.fronts[at]; f != nil {
			f.backends.Store(ptr(want[at]))
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
		if err != nil {
			everywhere = false
			if p.refused[at] != err.Error() {
				slog.Warn("a Service is not served", "address", at, "error", err)
				p.refused[at] = err.Error()
			}
			continue
		}
		delete(p.refused, at)
		f := &front{listener: listener}
		f.backends.Store(ptr(want[at]))
		p.fronts[at] = f
		go f.serve(ctx)
	}
	return everywhere
}

func ptr[T any](v T) *T { return &v }
