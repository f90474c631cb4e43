package kube_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// TestCloseAllAtOnce: no budget waits until another one is closed, which may take long when the API server is busy;
// that of the mons no longer than for a moment.
func TestCloseAllAtOnce(t *testing.T) {
	const all = 3
	var (
		mu     sync.Mutex
		closed []string
		every  = make(chan struct{})
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !assert.Equal(t, http.MethodPatch, r.Method, "whoever closes is in a hurry") {
			return
		}
		name := path.Base(r.URL.Path)
		mu.Lock()
		if closed = append(closed, name); len(closed) == all {
			close(every)
		}
		mu.Unlock()
		select {
		case <-every:
		case <-time.After(20 * time.Second):
			t.Errorf("%s is to be closed, and the others wait for it", name)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&policyv1.PodDisruptionBudget{
			TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
		})
	}))
	defer server.Close()
	c, err := kube.New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	policy := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "p"}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, c.Close(ctx, policy, kube.WatcherOwner, time.Unix(0, 0), "a test"))
	slices.Sort(closed)
	assert.Equal(t, []string{kube.MonBudgetName("p"), kube.DaemonBudgetName("p"), kube.ProvedBudgetName("p")}, closed)
}
