package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
)

// TestNoMarkArrivesAfterMarkingEnded: who cancels marking takes all marks away next, and then the budgets that read
// them. A request that was sent is carried out by the API server, whether anybody waits for its answer or not.
func TestNoMarkArrivesAfterMarkingEnded(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	sent, carryOut := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent <- struct{}{}
		<-carryOut
		arrived.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "osd"}}`))
	}))
	defer server.Close()
	typed, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-sent
		<-sent
		cancel()
		time.Sleep(50 * time.Millisecond)
		close(carryOut)
	}()
	n, err := NewFor(typed, nil).MarkPods(ctx,
		&v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph"}},
		[]storageview.Pod{{Name: "osd-0", UID: "0", Version: "1"}, {Name: "osd-1", UID: "1", Version: "1"}}, func(int) {})
	require.EqualValues(t, 2, arrived.Load(), "marks that arrived when marking ended")
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, context.Canceled)
}
