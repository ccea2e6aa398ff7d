package model

// space is one search: sizes of the model, and what must come of it.
type space struct {
	name string
	// defs choose sizes and rules in key.pml. Sets are bits: A is 1, B 2, C 4, D 8.
	defs  string
	fails bool // a variant of the rules that must be found to be wrong
	soak  bool // too big for every commit
	about string
}

const (
	replace3 = "-DM=4 -DR0=7 -DR1=14"         // ABC -> BCD
	replace2 = "-DM=3 -DR0=3 -DR1=6"          // AB -> BC
	back2    = "-DM=3 -DR0=3 -DR1=5 -DR2=3"   // AB -> AC -> AB
	shrink3  = "-DM=3 -DR0=7 -DR1=6"          // ABC -> BC
	stay3    = "-DM=3 -DR0=7 -DR1=0"          // ABC
	rings3   = "-DM=4 -DR0=7 -DR1=14 -DR2=13" // ABC -> BCD -> ACD
	one      = " -DWRITERS=1 -DREADERS=2"     // the first activation writes, the second one reads
	other    = " -DWRITERS=2 -DREADERS=1"     // the other way round
	both     = " -DWRITERS=3 -DREADERS=3"     // two activations write and read
	third    = " -DK=3 -DWRITERS=1 -DREADERS=4"
)

var spaces = []space{
	{name: "replace", defs: replace3 + " -DV=3 -DDROPS" + one, about: "ABC -> BCD"},
	{name: "replace-two", defs: replace2 + " -DV=3 -DDROPS" + both, about: "AB -> BC"},
	{name: "gain", defs: "-DM=3 -DR0=3 -DR1=7 -DV=3" + both, about: "AB -> ABC"},
	{name: "lose", defs: shrink3 + " -DV=3 -DDROPS" + one, about: "ABC -> BC, those that stay compare"},
	{name: "grow", defs: "-DM=3 -DR0=1 -DR1=3 -DR2=7 -DV=5" + one, about: "A -> AB -> ABC"},
	{name: "shrink", defs: shrink3 + " -DR2=4 -DV=5 -DDROPS" + one, about: "ABC -> BC -> C"},
	{name: "crash", defs: stay3 + " -DV=2 -DCRASHES=1" + both, about: "ABC, one member loses its memory"},
	{name: "crash-two", defs: replace2 + " -DV=5 -DCRASHES=1" + one, about: "AB -> BC, one member loses its memory"},
	{name: "abort", defs: replace2 + " -DV=5 -DABORTS" + one, about: "AB -> BC, aborted, and begun again"},
	{name: "back", defs: back2 + " -DV=5 -DDROPS" + one, about: "AB -> AC -> AB"},
	{name: "retarget", defs: "-DM=4 -DR0=3 -DR1=6 -DR2=9 -DV=4 -DRETARGETS" + one, about: "AB -> BC, retargeted to AD on the way"},
	{name: "activations", defs: replace2 + " -DV=3" + third, about: "AB -> BC, three activations"},

	{name: "no-fence", defs: replace3 + " -DV=3 -DNO_FENCE" + one, fails: true, about: "replicas take requests of any version"},
	{name: "pull-leaves-fence", defs: replace3 + " -DV=3 -DPULL_LEAVES_FENCE" + one, fails: true, about: "a source that answers a pull goes on taking requests of before"},
	{name: "receiving-counts", defs: replace3 + " -DV=3 -DRECEIVING_COUNTS -DNEXT_ALONE" + one, fails: true, about: "members that are still receiving count, and W(S') is asked alone"},
	{name: "next-alone", defs: replace3 + " -DV=3 -DABORTS -DNEXT_ALONE" + one, fails: true, about: "in switch W(S') is enough"},
	{name: "base-alone", defs: replace3 + " -DV=3 -DWRITE_BASE_ALONE" + one, fails: true, about: "in switch a write needs W(S) alone"},
	{name: "prepare-base-alone", defs: replace3 + " -DV=3 -DPREPARE_BASE_ALONE" + one, fails: true, about: "in switch an activation needs W(S) alone"},
	{name: "prepare-by-r", defs: replace2 + " -DV=3 -DPREPARE_BY_R" + one, fails: true, about: "an activation needs R(S) and R(S')"},
	{name: "first-ack", defs: replace3 + " -DV=3 -DFIRST_ACK" + one, fails: true, about: "a write is answered at its first acknowledgement"},
	{name: "acks-added", defs: stay3 + " -DV=2 -DCRASHES=1 -DACKS_ADDED" + one, fails: true, about: "acknowledgements of two versions are added up"},
	{name: "promises-added", defs: stay3 + " -DV=2 -DCRASHES=1 -DPROMISES_ADDED" + one, fails: true, about: "promises of two versions are added up"},
	{name: "read-base-alone", defs: replace3 + " -DV=3 -DREAD_BASE_ALONE" + other, fails: true, about: "in switch a read needs W(S) alone"},
	{name: "read-next-alone", defs: replace3 + " -DV=3 -DABORTS -DREAD_NEXT_ALONE" + other, fails: true, about: "in switch a read needs W(S') alone"},
	{name: "read-by-r", defs: replace2 + " -DV=3 -DREAD_BY_R" + one, fails: true, about: "a read needs R(S) and R(S')"},
	{name: "read-unconfirmed", defs: replace2 + " -DV=3 -DREAD_UNCONFIRMED" + one, fails: true, about: "a read asks nobody"},
	{name: "one-source", defs: replace3 + " -DV=3 -DONE_SOURCE" + one, fails: true, about: "a key is filled when one member of S has answered"},
	{name: "sources-of-range", defs: "-DM=3 -DR0=1 -DR1=2 -DV=3 -DSOURCES_OF_RANGE" + one, fails: true, about: "sources are counted for a range, whether they are in the key's set or not"},
	{name: "promises-left", defs: replace3 + " -DV=3 -DPROMISES_LEFT" + one, fails: true, about: "a receiver takes states and leaves promises"},
	{name: "promises-skipped", defs: replace3 + " -DV=3 -DPROMISES_SKIPPED" + one, fails: true, about: "copies that are promises alone are not given to receivers"},
	{name: "no-write-back", defs: replace2 + " -DV=3 -DNO_WRITE_BACK" + third, fails: true, about: "what an activation finds is answered before it is written under its epoch"},
	{name: "amnesiac-counts", defs: stay3 + " -DV=2 -DCRASHES=1 -DAMNESIAC_COUNTS" + one, fails: true, about: "a member that lost its memory counts at once"},
	{name: "refilling-source", defs: replace3 + " -DV=4 -DCRASHES=1 -DREFILLING_SOURCE" + one, fails: true, about: "a member that lost its memory is a source at once"},
	{name: "refilled-by-one", defs: stay3 + " -DV=2 -DCRASHES=1 -DONE_SOURCE" + one, fails: true, about: "it counts when one other has answered"},
	{name: "stayers-unfilled", defs: shrink3 + " -DR2=4 -DV=5 -DSTAYERS_UNFILLED" + one, fails: true, about: "members that stay while a set shrinks compare nothing"},
	{name: "advance-unfilled", defs: replace3 + " -DV=3 -DADVANCE_UNFILLED" + one, fails: true, about: "the log advances without reports"},
	{name: "filled-mark-reused", defs: "-DM=3 -DR0=1 -DR1=2 -DV=5 -DABORTS -DFILLED_MARK_REUSED" + one, fails: true, about: "what was filled in an aborted step counts for the next one"},
	{name: "older-replaces", defs: "-DM=3 -DR0=3 -DR1=0 -DV=3 -DK=3 -DOLDER_REPLACES -DWRITERS=3 -DREADERS=4", fails: true, about: "a late commit takes the place of a newer one"},
	{name: "lower-epoch", defs: replace2 + " -DV=3 -DLOWER_EPOCH" + one, fails: true, about: "commits below the promise are taken"},
	{name: "drop-early", defs: replace3 + " -DV=3 -DDROPS -DDROP_EARLY" + one, fails: true, about: "a member that leaves drops its copy before the step is over"},
	{name: "retarget-from-next", defs: "-DM=4 -DR0=3 -DR1=6 -DR2=12 -DV=4 -DRETARGET_FROM_NEXT" + one, fails: true, about: "a retarget goes on from the next ring instead of the base"},

	{name: "replace-both", defs: replace3 + " -DV=3" + both, soak: true, about: "ABC -> BCD, two activations write and read"},
	{name: "replace-crash", defs: replace3 + " -DV=4 -DCRASHES=1" + one, soak: true, about: "ABC -> BCD, one member loses its memory"},
	{name: "lose-crash", defs: shrink3 + " -DV=4 -DCRASHES=1" + one, soak: true, about: "ABC -> BC, one member loses its memory"},
	{name: "crash-twice", defs: stay3 + " -DV=3 -DCRASHES=2" + one, soak: true, about: "ABC, members lose their memory one after the other"},
	{name: "replace-abort", defs: replace3 + " -DV=5 -DABORTS" + one, soak: true, about: "ABC -> BCD, aborted, and begun again"},
	{name: "replace-retarget", defs: "-DM=4 -DR0=7 -DR1=14 -DR2=11 -DV=4 -DRETARGETS" + one, soak: true, about: "ABC -> BCD, retargeted to ABD on the way"},
	{name: "replace-activations", defs: replace3 + " -DV=3" + third, soak: true, about: "ABC -> BCD, three activations"},
	{name: "three-rings", defs: rings3 + " -DV=5 -DDROPS" + one, soak: true, about: "ABC -> BCD -> ACD"},
}
