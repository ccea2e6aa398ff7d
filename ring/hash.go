package ring

import (
	"crypto/sha256"
	"encoding/binary"
)

// HashV1 is the only algorithm so far: SHA-256 for the tokens of members, FNV-1a with a finalizer for those of keys.
const HashV1 uint8 = 1

const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

func fnv(h uint64, s string) uint64 {
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// fnvLen takes a length in, seven bits a step, so that ("ab","c") and ("a","bc") differ.
func fnvLen(h uint64, n int) uint64 {
	for n >= 0x80 {
		h = (h ^ uint64(n&0x7f|0x80)) * fnvPrime
		n >>= 7
	}
	return (h ^ uint64(n)) * fnvPrime
}

// KeyToken places a key of an actor type. An unknown algorithm number gives the tokens of HashV1: placements with
// one are refused by New.
func KeyToken(_ uint8, typ, key string) Token {
	h := fnv(fnvLen(fnvOffset, len(typ)), typ)
	h = fnv(fnvLen(h, len(key)), key)
	// The finalizer of MurmurHash3 (Appleby, public domain): FNV alone leaves the high bits of short keys alike.
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return Token(h ^ h>>33)
}

// vnodeToken places virtual node i of a member: the first 8 bytes of SHA-256 over the salt, the id's length, the id
// and i.
func vnodeToken(id string, i int) Token {
	buf := make([]byte, 0, 64)
	buf = append(buf, vnodeSalt...)
	buf = binary.AppendUvarint(buf, uint64(len(id)))
	buf = append(buf, id...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(i))
	sum := sha256.Sum256(buf)
	return Token(binary.BigEndian.Uint64(sum[:8]))
}

const vnodeSalt = "chainmail/1"
