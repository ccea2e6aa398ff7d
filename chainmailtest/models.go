package chainmailtest

// Counter is the model of one counter. A message is what is added, 0 to read; the answer is the sum.
func Counter() Model[int64, int64, int64] {
	return Model[int64, int64, int64]{
		Step:  func(sum, add int64) (int64, int64) { return sum + add, sum + add },
		Reads: func(add int64) bool { return add == 0 },
	}
}

// RegisterOp is a message of Register.
type RegisterOp[V any] struct {
	Writes bool
	Value  V
}

// Write and Read are the messages of Register.
func Write[V any](v V) RegisterOp[V] { return RegisterOp[V]{true, v} }

// Read is described at Write.
func Read[V any]() RegisterOp[V] { return RegisterOp[V]{} }

// Register is the model of one value. The answer to Write is what was written, that to Read what was written last, at first
// the zero value.
func Register[V any]() Model[V, RegisterOp[V], V] {
	return Model[V, RegisterOp[V], V]{
		Step: func(v V, op RegisterOp[V]) (V, V) {
			if op.Writes {
				v = op.Value
			}
			return v, v
		},
		Reads: func(op RegisterOp[V]) bool { return !op.Writes },
	}
}

// Keyed is a message for one of many actors.
type Keyed[I any] struct {
	Key string
	In  I
}

// At makes a message for the actor of a key.
func At[I any](key string, in I) Keyed[I] { return Keyed[I]{key, in} }

// ByKey is the model of many actors that follow the same model. Each key is checked alone, which is much less work than one
// long history.
func ByKey[S, I, O any](m Model[S, I, O]) Model[S, Keyed[I], O] {
	out := Model[S, Keyed[I], O]{
		Step: func(s S, in Keyed[I]) (S, O) { return m.Step(s, in.In) },
		Key:  func(in Keyed[I]) string { return in.Key },
	}
	if m.Reads != nil {
		out.Reads = func(in Keyed[I]) bool { return m.Reads(in.In) }
	}
	return out
}

// KeyValue is the model of many values: Put and Get are its messages. The answer to Get is "" where nothing is, that to Put
// what was put; Put of "" deletes.
func KeyValue() Model[string, Keyed[RegisterOp[string]], string] { return ByKey(Register[string]()) }

// Put and Get are the messages of KeyValue.
func Put(key, value string) Keyed[RegisterOp[string]] { return At(key, Write(value)) }

// Get is described at Put.
func Get(key string) Keyed[RegisterOp[string]] { return At(key, Read[string]()) }
