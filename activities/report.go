package activities

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Report is everything that the policy's status says, and the events that go with it.
type Report struct {
	Generation int64           `json:"generation"`
	Memory     Memory          `json:"memory"`
	Decision   budget.Decision `json:"decision"`
	Since      time.Time       `json:"since"`
	View       storage.View    `json:"view"`
	Health     storage.Health  `json:"health"`
	Clean      bool            `json:"clean"`
	Conflict   string          `json:"conflict,omitempty"`
	Unmanaged  bool            `json:"unmanaged,omitempty"`
	MayDrain   string          `json:"mayDrain"` // in a few words
	Keeper     string          `json:"keeper"`
	// Fencing is what else there is to say of it; nil: nothing.
	Fencing *FencingReport `json:"fencing,omitempty"`
	// AsOf is when all of this was so.
	AsOf   time.Time `json:"asOf,omitzero"`
	Events []Event   `json:"events,omitempty"`
}

// FencingReport is what people are told of the holds beside the ledger.
type FencingReport struct {
	Problem string   `json:"problem,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Max     *int     `json:"max,omitempty"` // what the MachineDisruptionBudget is to say
}

// Event is a Kubernetes Event on the policy, or on a node when one is named.
type Event struct {
	Node    string    `json:"node,omitempty"`
	Warning bool      `json:"warning,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// ReportInput is a report and whose it is.
type ReportInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Report  Report             `json:"report"`
}

// ReportStatus writes the policy's status and events.
func (k *Keeper) ReportStatus(ctx context.Context, in ReportInput) (struct{}, error) {
	err := k.Policies.ReportStatus(ctx, in.Cluster, in.Report)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return struct{}{}, Unavailable("write the status of MaintenancePolicy "+in.Cluster.String(), err)
	}
	return struct{}{}, nil
}

// remember writes a status that must not be forgotten. Where there is no policy any more nothing is remembered, and
// what comes after it is not done.
func (k *Keeper) remember(ctx context.Context, in ReportInput) (struct{}, error) {
	err := k.Policies.ReportStatus(ctx, in.Cluster, in.Report)
	if errors.Is(err, ErrNotFound) {
		return struct{}{}, Changed("there is no MaintenancePolicy %s any more", in.Cluster)
	}
	if err != nil {
		return struct{}{}, Unavailable("write the status of MaintenancePolicy "+in.Cluster.String(), err)
	}
	return struct{}{}, nil
}

// Renewal confirms a report, of which nothing has changed.
type Renewal struct {
	MayDrain string    `json:"mayDrain"` // as it was reported
	AsOf     time.Time `json:"asOf"`
}

// RenewInput is a renewal and whose status it is.
type RenewInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Renewal
}

// RenewResult says whether the status was confirmed.
type RenewResult struct {
	// Differs: the status does not say what was reported, and is to be written anew.
	Differs bool `json:"differs,omitempty"`
}

// RenewStatus confirms the policy's status, in one request.
func (k *Keeper) RenewStatus(ctx context.Context, in RenewInput) (RenewResult, error) {
	differs, err := k.Policies.RenewStatus(ctx, in.Cluster, in.Renewal)
	if err != nil {
		return RenewResult{}, Unavailable("confirm the status of MaintenancePolicy "+in.Cluster.String(), err)
	}
	return RenewResult{Differs: differs}, nil
}
