package lease

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"slices"
)

// This file keeps the lease small on its way: hundreds of jobs may wait for it, and Temporal refuses a payload of 2
// MiB. No claim can be left out, since there is no other record of it. But claims repeat each other's words and their
// own names.

// plainClaims is up to how many claims the state is written in plain JSON.
const plainClaims = 64

type plainState State

// packedState is the JSON of a state with more claims.
type packedState struct {
	Token int64 `json:"token"`
	// Packed is the plain JSON, compressed.
	Packed []byte `json:"packed,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s State) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainState(s))
	if err != nil || len(s.Holders)+len(s.Queue) <= plainClaims {
		return data, err
	}
	packed, err := compressed(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(packedState{s.Token, packed})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *State) UnmarshalJSON(data []byte) error {
	var p packedState
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if len(p.Packed) > 0 {
		var err error
		if data, err = plain(p.Packed); err != nil {
			return err
		}
	}
	var state plainState
	if err := json.Unmarshal(data, &state); err != nil {
		return err
	}
	*s = State(state)
	return nil
}

// Pack writes claims for whoever need not read them but has to keep them. Why they wait is left out.
func Pack(claims []Claim) ([]byte, error) {
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i].WaitsFor, claims[i].Mendable = "", false
	}
	data, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	return compressed(data)
}

// Unpack is the reverse of Pack.
func Unpack(packed []byte) (claims []Claim, err error) {
	data, err := plain(packed)
	if err != nil {
		return nil, err
	}
	return claims, json.Unmarshal(data, &claims)
}

func compressed(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func plain(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
