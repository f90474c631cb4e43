package workflows_test

import (
	"sync/atomic"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// mostPayload is how large any payload may be. Temporal warns at 256 KiB, and refuses 2 MiB.
const mostPayload = 256 << 10

// measured is the SDK's data converter, and remembers the largest payload that passed through it.
type measured struct {
	converter.DataConverter
	largest atomic.Int64
}

func newMeasured() *measured { return &measured{DataConverter: converter.GetDefaultDataConverter()} }

func (m *measured) ToPayload(value any) (*commonpb.Payload, error) {
	p, err := m.DataConverter.ToPayload(value)
	m.note(p)
	return p, err
}

func (m *measured) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	all, err := m.DataConverter.ToPayloads(values...)
	for _, p := range all.GetPayloads() {
		m.note(p)
	}
	return all, err
}

func (m *measured) note(p *commonpb.Payload) {
	for size := int64(len(p.GetData())); ; {
		was := m.largest.Load()
		if size <= was || m.largest.CompareAndSwap(was, size) {
			return
		}
	}
}
