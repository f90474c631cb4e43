package activities

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what rollouts of OSDs ask of sets of pods, and what they are told.

// OSDSetKind is who owns the pods of the OSDs that are replaced.
type OSDSetKind string

// The kinds of sets.
const (
	OSDSetCephOSD     OSDSetKind = "CephOSD"     // bare pods, made by lockkeeper from a CephOSD
	OSDSetDeployments OSDSetKind = "Deployments" // one Deployment for each OSD, as Rook makes them
	// OSDSetWaiting is whatever a controller wants gone of a policy's OSDs and mons, and the guard of deletions has wait.
	OSDSetWaiting OSDSetKind = "Waiting"
)

// OSDSetRef names the OSDs of a rollout.
type OSDSetRef struct {
	Kind      OSDSetKind `json:"kind"`
	Namespace string     `json:"namespace"`
	// Name of the CephOSD, or of the restart, which tells it from the ones before.
	Name string `json:"name"`
	// Selector selects the Deployments; "" for a CephOSD.
	Selector string `json:"selector,omitempty"`
	// Policy and all that follows are of a restart; a CephOSD has its own. Policy "": the only one of the namespace.
	Policy           string        `json:"policy,omitempty"`
	UpdateDomain     string        `json:"updateDomain,omitempty"`
	MaxParallel      int           `json:"maxParallel,omitempty"`
	ProgressDeadline time.Duration `json:"progressDeadline,omitempty"` // 0: DefaultProgressDeadline
	// Image is what the OSDs of a restart are to run; "": the one that they have.
	Image string `json:"image,omitempty"`
	// CephVersion is what a person says of the image; "": it is asked.
	CephVersion string `json:"cephVersion,omitempty"`
}

// DefaultProgressDeadline is how long OSDs may take to serve again where nobody says how long.
const DefaultProgressDeadline = 10 * time.Minute

// SurveyInput asks what there is to do for a set.
type SurveyInput struct {
	OSDSet OSDSetRef `json:"set"`
	Skip   []string  `json:"skip,omitempty"`
	// CanaryOf is the template whose canary went already.
	CanaryOf string `json:"canaryOf,omitempty"`
	// Canary is the key of the OSD that went first and is still to be judged: its life and its troubles are asked for. ""
	// for none.
	Canary string `json:"canary,omitempty"`
	// LetGo are daemons that a job of kind Waiting has let go and that are still awaited; Done is how many are back.
	LetGo []LetGo `json:"letGo,omitempty"`
	Done  int     `json:"done,omitempty"`
}

// LetGo is a daemon whose pod was let go because somebody wanted it gone.
type LetGo struct {
	Key string `json:"key"` // "osd.3"
	Pod string `json:"pod"` // UID of the pod that went
	// Epoch of the storage cluster's map before: an OSD is back when it came up later.
	Epoch int64 `json:"epoch,omitempty"`
	// ForGood: nothing takes the pod's place.
	ForGood bool `json:"forGood,omitempty"`
}

// Survey is what was seen of a set, and what is to be done next. It is small, whatever the number of OSDs.
type Survey struct {
	Found      bool  `json:"found"`
	Deleting   bool  `json:"deleting,omitempty"`
	Generation int64 `json:"generation,omitempty"`
	// Template stands for what the pods are to be like.
	Template string             `json:"template,omitempty"`
	Cluster  storage.ClusterKey `json:"cluster"`
	// Refused says what is wrong with the spec. Then nothing is done; what runs stays.
	Refused []input.Error `json:"refused,omitempty"`
	// Warned says what else is wrong with it, and concerns only a part of the OSDs: hosts that are no nodes.
	Warned []input.Error `json:"warned,omitempty"`
	Rules  OSDSetRules   `json:"rules"`
	Counts OSDSetCounts  `json:"counts"`
	Next   rollout.Step  `json:"next"`
	// Discard are pods that may go without further ado: they are duplicates that do not serve, or nobody's.
	Discard []string `json:"discard,omitempty"`
	// Unnoted is how many pods do not say yet what is known of them.
	Unnoted int `json:"unnoted,omitempty"`
	// Removable are pods of OSDs that are no longer in the spec, and whose data nobody needs; Superfluous OSDs that
	// somebody does.
	Removable   []string      `json:"removable,omitempty"`
	Superfluous []Superfluous `json:"superfluous,omitempty"`
	// Foreign are pods that carry our label and are not ours.
	Foreign []string `json:"foreign,omitempty"`
	// Unavailable says why the storage cluster gave no answer. Then Next is not known.
	Unavailable string `json:"unavailable,omitempty"`
	// Counted: Counts are of now. They are not known when the spec is refused or the storage cluster gave no answer.
	Counted bool `json:"counted,omitempty"`
	// CanaryLife is another one each time the canary starts; "" as long as it does not serve.
	CanaryLife string `json:"canaryLife,omitempty"`
	// CanaryTrouble is what the storage cluster has against the canary although it serves; "": nothing.
	CanaryTrouble string `json:"canaryTrouble,omitempty"`
	// Skipped are OSDs that a person excused from the present template in an earlier run, as the status remembers them.
	Skipped []string `json:"skipped,omitempty"`
	// Excused are OSDs, "osd.3", that do not serve, and for which nobody waits, because a person said so.
	Excused []string `json:"excused,omitempty"`
	// LookAgain is after how long another look may find more to do although nobody tells of a change; 0: never.
	LookAgain time.Duration `json:"lookAgain,omitempty"`
}

// Created is what became of missing pods.
type Created struct {
	// Refused: the API server rejects them, and why.
	Refused *input.Error `json:"refused,omitempty"`
	// Hindered are OSDs whose pod could not be made, and by whom: somebody else's pod has its name, say.
	Hindered []Superfluous `json:"hindered,omitempty"`
}

// Rehearsal is what speaks against the successors of a batch.
type Rehearsal struct {
	// Refused: the API server rejects the new pods, or they can never be these OSDs', and why.
	Refused *input.Error `json:"refused,omitempty"`
	// Waits is what has to happen elsewhere before the OSDs may be started as the template says; "": nothing.
	Waits string `json:"waits,omitempty"`
}

// Rehearsed is what may be expected of a batch before it asks for the lease.
type Rehearsed struct {
	Rehearsal
	// OSDs are those of the batch that the storage cluster could spare together now; all of them when it could spare none,
	// since then it may be somebody else's turn.
	OSDs []rollout.OSD `json:"osds,omitempty"`
}

// Superfluous is an OSD that is no longer in the spec, and why its pod stays.
type Superfluous struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

// OSDSetCounts counts a set's OSDs and pods.
type OSDSetCounts struct {
	rollout.Counts
	Invalid     int `json:"invalid,omitempty"`
	Terminating int `json:"terminating,omitempty"`
	Superfluous int `json:"superfluous,omitempty"`
}

// OSDSetRules is how a rollout is to go.
type OSDSetRules struct {
	Paused           bool          `json:"paused,omitempty"`
	Soak             time.Duration `json:"soak,omitempty"`     // how long the canary is watched
	Approval         bool          `json:"approval,omitempty"` // a person must say that the canary is fine
	PauseBetween     time.Duration `json:"pauseBetween,omitempty"`
	ProgressDeadline time.Duration `json:"progressDeadline"`
	// Shut: the maintenance window is not open; WindowChanges is when it opens or shuts, zero for never.
	Shut          bool      `json:"shut,omitempty"`
	WindowChanges time.Time `json:"windowChanges,omitzero"`
	// Consent: nothing goes before a person has approved the job as a whole.
	Consent bool `json:"consent,omitempty"`
}

// Replacement is one batch, under one grant of the lease.
type Replacement struct {
	OSDSet   OSDSetRef          `json:"set"`
	Cluster  storage.ClusterKey `json:"cluster"`
	Template string             `json:"template"`
	OSDs     []rollout.OSD      `json:"osds"`
	// The lease under which they may stop; Token 0 for OSDs that nobody can miss.
	WorkflowID string `json:"workflowID,omitempty"`
	RunID      string `json:"runID,omitempty"`
	Token      int64  `json:"token,omitempty"`
	// Epoch is the ChangeEpoch of the storage cluster's map that the grant rests on.
	Epoch int64 `json:"epoch,omitempty"`
	// Alive is when all OSDs elsewhere were known to live when the lease was granted, by the clock of Temporal's server.
	Alive time.Time `json:"alive,omitzero"`
}

// Replaced is what became of a batch.
type Replaced struct {
	// Refused: nothing was stopped, and why. Otherwise every OSD of the batch was replaced.
	Refused string `json:"refused,omitempty"`
	// Only these were stopped, since the storage cluster could not spare all of them.
	OSDs []rollout.OSD `json:"osds,omitempty"`
}

// Arrival is how far the OSDs of a batch are.
type Arrival struct {
	// Waiting are those that do not serve yet, and why.
	Waiting []Superfluous `json:"waiting,omitempty"`
	// Excused are those that do not serve, and for which nobody waits, because a person said so: "osd.3".
	Excused []string `json:"excused,omitempty"`
	// Moved: the set's template or spec is another one by now.
	Moved bool `json:"moved,omitempty"`
}

// AwaitInput names OSDs that are to serve.
type AwaitInput struct {
	OSDSet   OSDSetRef          `json:"set"`
	Cluster  storage.ClusterKey `json:"cluster"`
	Template string             `json:"template"`
	Keys     []string           `json:"keys"`
	LetGo    []LetGo            `json:"letGo,omitempty"`
}

// OSDSets reads and changes the pods of OSDs.
type OSDSets interface {
	// Survey looks at a set and decides what is next.
	Survey(ctx context.Context, in SurveyInput) (Survey, error)
	// Create makes missing pods. One that is there already is no error.
	Create(ctx context.Context, osdSet OSDSetRef, keys []string) (Created, error)
	// Discard deletes pods that a Survey named, unless they serve by now.
	Discard(ctx context.Context, osdSet OSDSetRef, pods []string) error
	// Note writes on the pods what is known of them: their state, their OSD's number, where it is.
	Note(ctx context.Context, osdSet OSDSetRef) error
	// Remove deletes the pods of OSDs that are no longer in the spec, unless somebody needs their data by now.
	Remove(ctx context.Context, osdSet OSDSetRef, keys []string) error
	// Alive answers whether every OSD that is up, but for those of a batch, makes a report after it was asked.
	Alive(ctx context.Context, in Replacement) (storage.Answer, error)
	// Rehearse lets the API server and the storage cluster judge the successors of a batch.
	Rehearse(ctx context.Context, in Replacement) (Rehearsal, error)
	// Spare asks the storage cluster which OSDs of a batch may stop together now. The answer names at least one, or says
	// why none.
	Spare(ctx context.Context, in Replacement) ([]rollout.OSD, storage.Answer, error)
	// Replace stops the OSDs, sees their pods gone, and makes their successors. Done again it goes on where it was.
	Replace(ctx context.Context, in Replacement) error
	// Await returns when all serve, or the set's spec has moved on; beat hears of what is still waited for.
	Await(ctx context.Context, in AwaitInput, beat func(Arrival)) (Arrival, error)
	// Confirm notes on the pods that they serve as their template says.
	Confirm(ctx context.Context, in AwaitInput) error
	// Report writes the set's status and its events. A set that is gone is no error.
	Report(ctx context.Context, in OSDSetReport) error
}

// Why a rollout holds back although nothing is wrong, as it appears in status, conditions and events.
const (
	HoldPaused   = "Paused"           // by spec.paused or the signal
	HoldWindow   = "OutsideWindow"    // no maintenance window is open
	HoldPause    = "PauseBetween"     // between two batches
	HoldSoak     = "SoakingCanary"    // the canary has to serve for a while
	HoldApproval = "AwaitingApproval" // a person has to approve the canary, or what waits to be restarted
	HoldLease    = "AwaitingLease"    // somebody else disrupts the storage, or it is not whole
	HoldRelease  = "AwaitingRelease"  // the storage cluster cannot take OSDs of the template's version yet
	HoldStorage  = "AwaitingStorage"  // the storage cluster does not answer, or cannot spare any OSD
)

// OSDSetReport is what is written into a CephOSD's status.
type OSDSetReport struct {
	OSDSet     OSDSetRef     `json:"set"`
	WorkflowID string        `json:"workflowID"`
	Generation int64         `json:"generation"`
	Template   string        `json:"template,omitempty"`
	Phase      string        `json:"phase"`
	Message    string        `json:"message,omitempty"`
	Since      time.Time     `json:"since"`
	Counts     OSDSetCounts  `json:"counts"`
	Batch      *OSDSetBatch  `json:"batch,omitempty"`
	Halted     *Halt         `json:"halted,omitempty"`
	Refused    []input.Error `json:"refused,omitempty"`
	Warned     []input.Error `json:"warned,omitempty"` // what is wrong with the spec, and concerns only a part of the OSDs
	Foreign    []string      `json:"foreign,omitempty"`
	Waiting    []Superfluous `json:"waiting,omitempty"` // OSDs that are no longer in the spec, and why they stay
	// Counted: Counts are known; otherwise those of the last report are the best that is known.
	Counted bool `json:"counted,omitempty"`
	// Holds is one of HoldPaused, …, or "" when nothing keeps the rollout from going on.
	Holds string `json:"holds,omitempty"`
	// Outcome is how it ended; "" as long as it runs.
	Outcome string   `json:"outcome,omitempty"`
	Skipped []string `json:"skipped,omitempty"` // OSDs that a person excused from the present template
}

// OSDSetBatch is the batch in work.
type OSDSetBatch struct {
	Domain storage.FailureDomain `json:"domain,omitzero"`
	OSDs   []string              `json:"osds"`
	Since  time.Time             `json:"since"`
}

// Halt is why nothing further is replaced.
type Halt struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}
