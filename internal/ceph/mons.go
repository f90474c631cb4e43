package ceph

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file asks and changes the monitors themselves. Three of Ceph's answers are not what they seem:
//
//   - quorum_status names a monitor that is dead or hung for 6 to 14 s more;
//   - "mon ok-to-rm" and "mon ok-to-stop" say yes to monitors that do not exist;
//   - "mon rm" of a monitor that does not exist is a success.

// proofKey is the key that a proof writes. Nobody reads it.
const proofKey = "lockkeeper/proof"

// Commit has the monitors commit something. Every member of a quorum has to accept a commit, so all who are in quorum
// right after it were alive when they were asked. With a dead or hung member the commit waits until the others have
// agreed without it; an error means that nobody knows who lives.
//
// What is committed is a key of lockkeeper's own, always with the same value: Ceph commits it all the same. It may be
// repeated, and without an answer it may be carried out late; neither changes anything.
func (c Client) Commit(ctx context.Context) error {
	return c.run(ctx, configKeyCommand{Prefix: "config-key set", Key: proofKey, Value: "1"}, nil)
}

// ProvedQuorum says who is in quorum right after a commit.
func (c Client) ProvedQuorum(ctx context.Context) (QuorumStatus, error) {
	if err := c.Commit(ctx); err != nil {
		return QuorumStatus{}, err
	}
	q, err := c.QuorumStatus(ctx)
	if err == nil && !q.Majority() {
		err = fmt.Errorf("ceph quorum_status: %v are no majority of %d monitors", q.QuorumNames, len(q.MonMap.Mons))
	}
	return q, err
}

// OKToStopMon asks whether a monitor may stop and come back.
func (c Client) OKToStopMon(ctx context.Context, name string) (storage.Answer, error) {
	return c.okForMon(ctx, name, okToStopMonsCommand{Prefix: "mon ok-to-stop", IDs: []string{name}, Format: "json"})
}

// OKToRemoveMon asks whether a monitor may leave the monmap.
func (c Client) OKToRemoveMon(ctx context.Context, name string) (storage.Answer, error) {
	return c.okForMon(ctx, name, okToRemoveMonCommand{Prefix: "mon ok-to-rm", ID: name, Format: "json"})
}

// okForMon makes sure that the answer is about a monitor that there is.
func (c Client) okForMon(ctx context.Context, name string, question command) (storage.Answer, error) {
	q, err := c.QuorumStatus(ctx)
	if err != nil {
		return storage.Answer{}, err
	}
	if _, known := q.Find(name); !known {
		return storage.Answer{Reason: fmt.Sprintf("mon.%s is not in the monmap", name), Refusal: storage.RefusalUnknown}, nil
	}
	return c.monAnswer(ctx, question)
}

// OKToAddMon asks whether the monitors still agree if one more is in the monmap and not there.
func (c Client) OKToAddMon(ctx context.Context) (storage.Answer, error) {
	return c.monAnswer(ctx, plainCommand{Prefix: "mon ok-to-add-offline", Format: "json"})
}

// monAnswer is Ceph's yes or no, which is in the return code and in words only.
func (c Client) monAnswer(ctx context.Context, question command) (storage.Answer, error) {
	_, err := c.send(ctx, question)
	var refused *CommandError
	switch {
	case IsBusy(err) && errors.As(err, &refused):
		return storage.Answer{Reason: refused.Text, Refusal: storage.RefusalHarm}, nil
	case err != nil:
		return storage.Answer{}, err
	}
	return storage.Answer{OK: true}, nil
}

// RemoveMon takes a monitor out of the monmap, whose process then ends by itself. It may be repeated. An answer may be
// missing although it was carried out: the change is an election.
func (c Client) RemoveMon(ctx context.Context, name string) error {
	if name == "" {
		return errors.New("ceph mon rm: no monitor is named")
	}
	return c.run(ctx, removeMonCommand{Prefix: "mon rm", Name: name}, nil)
}
