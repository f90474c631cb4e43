package cephcluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestCauseOfAFailureToConnect: each failure has the cause that a person can mend.
func TestCauseOfAFailureToConnect(t *testing.T) {
	refused := func(code syscall.Errno) error {
		return &ceph.CommandError{Command: "connect", Code: -int(code), Err: code}
	}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "x"}, "y")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", nil)
	for name, c := range map[string]struct {
		objects objects
		dial    error
		cause   storage.Cause
	}{
		"no ConfigMap":        {objects{endpointsErr: gone}, nil, storage.CauseAddress},
		"ConfigMap forbidden": {objects{endpointsErr: forbidden}, nil, storage.CauseAccess},
		"no addresses in it":  {objects{endpoints: "a=10.0.0"}, nil, storage.CauseAddress},
		"no Secret":           {objects{secretErr: gone}, nil, storage.CauseCredentials},
		"Secret forbidden":    {objects{secretErr: forbidden}, nil, storage.CauseAccess},
		"no user in it":       {objects{user: "mon.a"}, nil, storage.CauseCredentials},
		"user unknown":        {objects{}, refused(syscall.ENOENT), storage.CauseCredentials},
		"key wrong":           {objects{}, refused(syscall.EACCES), storage.CauseCredentials},
		"no quorum":           {objects{}, refused(syscall.ETIMEDOUT), ""},
		"librados too old": {
			objects{},
			&storage.UnreachableError{Cause: storage.CauseLibrary, Err: errors.New("AES256K")},
			storage.CauseLibrary,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.objects, dialer{c.dial}).connect(t.Context(), cephPolicy(), storage.ClusterKey{})
			require.Error(t, err)
			require.Equal(t, string(c.cause), string(storage.CauseOf(fmt.Errorf("look: %w", err))), err)
		})
	}
}

// TestCauseOfARefusedCommand: a look that Ceph refuses is an answer that names the missing right.
func TestCauseOfARefusedCommand(t *testing.T) {
	mons := &clockMons{epoch: 10, election: 1, upFrom: map[int]int64{}, counts: map[int]uint32{}, dump: syscall.EACCES}
	r, err := newCluster(&somePods{}, mons, cephPolicy()).read(t.Context())
	require.NoError(t, err)
	require.Equal(t, storage.CauseRights, r.Cause)
	require.Contains(t, r.Unavailable, "osd dump")
}

// objects are the ConfigMap and the Secret of a policy: such as suffice, but for what a field says.
type objects struct {
	Kubernetes
	endpoints, user         string
	endpointsErr, secretErr error
}

func (o objects) ConfigMapValue(context.Context, string, string, string) (string, error) {
	return orDefault(o.endpoints, "a=127.0.0.1:6789"), o.endpointsErr
}

func (o objects) SecretValue(_ context.Context, _, _, key string) (string, error) {
	if key == "ceph-username" {
		return orDefault(o.user, "client.lockkeeper"), o.secretErr
	}
	return "a key", o.secretErr
}

// dialer always fails.
type dialer struct{ err error }

func (d dialer) Dial(context.Context, Address) (Conn, error) { return nil, d.err }
