package kubeapi

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// Selectors understands those of requests, and remembers label selectors, which come again and again.
type Selectors map[string]labels.Selector

// Parse tells which objects are meant, by their labels and fields.
func (s Selectors) Parse(o metav1.ListOptions) (func(map[string]string, fields.Set) bool, error) {
	l, known := s[o.LabelSelector]
	if !known {
		var err error
		if l, err = labels.Parse(o.LabelSelector); err != nil {
			return nil, err
		}
		s[o.LabelSelector] = l
	}
	f, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return nil, err
	}
	return func(set map[string]string, values fields.Set) bool {
		return l.Matches(labels.Set(set)) && f.Matches(values)
	}, nil
}

// Watch tells of whatever next finds, which waits until it has found something. It ends when next finds nothing.
func Watch(ctx context.Context, next func(context.Context) []watch.Event) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	w := watching{events: make(chan watch.Event), stop: cancel}
	go func() {
		defer close(w.events)
		for events := next(ctx); len(events) > 0; events = next(ctx) {
			for _, e := range events {
				select {
				case w.events <- e:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return w
}

type watching struct {
	events chan watch.Event
	stop   context.CancelFunc
}

func (w watching) Stop()                          { w.stop() }
func (w watching) ResultChan() <-chan watch.Event { return w.events }
