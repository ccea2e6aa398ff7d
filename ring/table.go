package ring

// tabled is up to which replica count the sets are computed once: lookups then allocate nothing.
const tabled = 3

// table holds the replica sets of all table entries, one every stride.
type table struct {
	size, stride int
	ids          []string
}

// at gives the set of entry i. Its capacity is its length: appending to it copies.
func (t table) at(i int) []string {
	lo := i * t.stride
	hi := lo + t.size
	return t.ids[lo:hi:hi]
}

// tabulate computes the sets that are looked up most. A smaller set is the beginning of a larger one, and shares its
// table, unless the larger one has places left for others than the first members of zones and there are several zones.
func (r *Ring) tabulate() {
	most := min(tabled, len(r.members))
	for n := most; n > 0; n-- {
		if n < most && (n == 1 || r.nzones == 1 || n < r.nzones) {
			r.sets[n] = table{n, r.sets[n+1].stride, r.sets[n+1].ids}
		} else {
			r.sets[n] = r.compute(n)
		}
	}
}

// table gives the sets of n replicas, bounded as in Replicas: a large one is computed.
func (r *Ring) table(n int) table {
	n = max(0, min(n, len(r.members), MaxReplicas))
	if n <= tabled {
		return r.sets[n]
	}
	return r.compute(n)
}

func (r *Ring) compute(n int) table {
	t := table{n, n, make([]string, 0, n*len(r.tokens))}
	for i := range r.tokens {
		t.ids = r.appendSet(t.ids, i, n)
	}
	return t
}

// appendSet appends the n replicas of table entry i; n is at most MaxReplicas and at most the number of members. Only
// those taken need to be remembered on the way: whoever is passed over once is passed over again.
func (r *Ring) appendSet(dst []string, i, n int) []string {
	var taken [MaxReplicas]uint32
	others := max(0, n-r.nzones) // places for members of zones that are represented
	for k := 0; k < n; {
		m := r.owner[i]
		if i++; i == len(r.tokens) {
			i = 0
		}
		again, represented := false, false
		for _, x := range taken[:k] {
			again = again || x == m
			represented = represented || r.zones[x] == r.zones[m]
		}
		if again || represented && others == 0 {
			continue
		}
		if represented {
			others--
		}
		taken[k] = m
		k++
		dst = append(dst, r.members[m].ID)
	}
	return dst
}
