package ceph

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// OKToStop asks whether these OSDs may all stop now without any placement group becoming unavailable. No OSDs: yes. The
// groups of tolerated pools (their ids) may become so.
//
// The manager answers from the placement groups' state as it knows it, which lags behind the OSD map by seconds: the
// answer counts only with knowledge that was proved to be fresh. "No" and "not known yet" are answers; an error means
// that nobody answered.
func (c Client) OKToStop(ctx context.Context, osds []int, tolerated ...int) (storage.Answer, error) {
	if len(osds) == 0 {
		return storage.Answer{OK: true}, nil
	}
	command := okToStopCommand{Prefix: "osd ok-to-stop", Format: "json"}
	for _, id := range osds {
		command.IDs = append(command.IDs, strconv.Itoa(id))
	}
	output, err := c.send(ctx, command)
	switch {
	case IsBusy(err), IsAgain(err):
		return refusal(output, err, tolerated), nil
	case err != nil:
		return storage.Answer{}, err
	}
	var report okToStopReport
	if err := decode(command, output, &report); err != nil {
		return storage.Answer{}, err
	}
	// Ceph names the OSDs that its yes is about. They must be ours: a yes to another question is no answer.
	if report.OK && !report.covers(osds) {
		return storage.Answer{}, fmt.Errorf("ceph osd ok-to-stop %v: the answer is about %v", osds, report.OSDs)
	}
	return report.answer(tolerated), nil
}

// okToStopReport is the answer to "osd ok-to-stop".
type okToStopReport struct {
	OK       bool     `json:"ok_to_stop"`
	OSDs     []int    `json:"osds"`
	NumNotOK int      `json:"num_not_ok_pgs"`
	Inactive []string `json:"bad_become_inactive"`
	Already  []string `json:"bad_already_inactive"`
}

func (r okToStopReport) covers(osds []int) bool {
	named := make(map[int]bool, len(r.OSDs))
	for _, id := range r.OSDs {
		named[id] = true
	}
	for _, id := range osds {
		if !named[id] {
			return false
		}
	}
	return true
}

// answer leaves out the groups of tolerated pools. Ceph lists all groups in the way; one that it counts and does not
// name is nobody's to tolerate.
func (r okToStopReport) answer(tolerated []int) storage.Answer {
	if r.OK {
		return storage.Answer{OK: true}
	}
	named := map[string]bool{}
	for _, pg := range slices.Concat(r.Already, r.Inactive) {
		named[pg] = true
	}
	already, inactive := counted(r.Already, tolerated), counted(r.Inactive, tolerated)
	harm := max(r.NumNotOK-len(named), 0)
	for pg := range named {
		if len(counted([]string{pg}, tolerated)) > 0 {
			harm++
		}
	}
	a := storage.Answer{Refusal: storage.RefusalHarm}
	if harm > 0 && harm == len(already) && len(inactive) == 0 {
		a.Refusal = storage.RefusalAlready
	}
	switch {
	case len(already) > 0:
		a.Reason = fmt.Sprintf("%d PGs are unavailable already, %s among them", len(already), already[0])
	case len(inactive) > 0:
		a.Reason = fmt.Sprintf("%d PGs would become unavailable, %s among them", len(inactive), inactive[0])
	case harm == 0 && len(named) > 0:
		a = storage.Answer{OK: true} // all that is in the way is tolerated
	default:
		a.Reason = fmt.Sprintf("%d PGs would become unavailable", harm)
	}
	return a
}

// counted leaves out the groups of tolerated pools: "3.1f" is of pool 3.
func counted(pgs []string, tolerated []int) []string {
	return slices.DeleteFunc(slices.Clone(pgs), func(pg string) bool {
		pool, _, _ := strings.Cut(pg, ".")
		id, err := strconv.Atoi(pool)
		return err == nil && slices.Contains(tolerated, id)
	})
}

// refusal is a "no" that came as an error: by its report if there is one, in the error's words otherwise.
func refusal(output []byte, err error, tolerated []int) storage.Answer {
	var report okToStopReport
	if json.Unmarshal(output, &report) == nil && report.NumNotOK > 0 {
		report.OK = false
		return report.answer(tolerated)
	}
	a := storage.Answer{Reason: err.Error(), Refusal: storage.RefusalHarm}
	if IsAgain(err) {
		a.Refusal = storage.RefusalUnknown
	}
	return a
}
