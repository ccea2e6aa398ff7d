/*
 * One key across rings: what docs/protocol.md says, for spin to search.
 *
 * What is in it: placements in the order of the log, each member at a version of its own; promises and stamps; the fence;
 * quorums of S and S'; activations that write back, write and read; filling, refilling after lost memory, shrinking sets;
 * aborted and retargeted steps; copies that are dropped. The stage copy is left out: its quorums are those of stable, and
 * what is pulled in it counts for nothing.
 *
 * How: a request that was sent stays sent. Each member may take it at any time, late, again, or never, and its answer
 * counts at once or never; so loss, doubling, delay and reordering need no channel. Owners are not modelled: anybody may
 * activate the key at any version at any time, and goes on as long as it likes.
 *
 * A state of the key is the set of writes that led to it. An answer shows a state; the answers of one run form a chain,
 * and each holds what was answered before its call began. That is checked at each activation, write and read.
 *
 * Sizes and the variants that must fail are chosen by -D; spaces_test.go lists them.
 */

/* ---- sizes ---- */
#ifndef M
#define M 4		/* members: bits 0.. of a set */
#endif
#ifndef V
#define V 3		/* placements */
#endif
#ifndef K
#define K 2		/* activations */
#endif
#ifndef CRASHES
#define CRASHES 0	/* members that lose their memory */
#endif
#ifndef WRITERS
#define WRITERS 1	/* activations that write, a bit each */
#endif
#ifndef READERS
#define READERS 0	/* activations that read */
#endif
#ifndef R0
#define R0 7		/* the set on the first ring, and where steps lead from there */
#define R1 14
#endif
#ifndef R2
#define R2 0		/* 0: there is none */
#endif

/* ---- sets ---- */
#define has(s, m)	(((s) >> (m)) & 1)
#define one(m)		(1 << (m))
#define size(s)		(has(s,0) + has(s,1) + has(s,2) + has(s,3) + has(s,4))
#define W(s)		(size(s) / 2 + 1)
#define R(s)		(size(s) - W(s) + 1)

/* ---- the log: sets by version ---- */
byte S[V], N[V];	/* on base and next: equal when no step is under way */
byte T[V];		/* the version at which the step began, which names it */
byte head;		/* the newest */
byte crashes;

/* ---- members ---- */
byte ver[M];		/* newest version this member has answered at: its fence */
byte prom[M];		/* promised epoch */
byte st[M];		/* stamp of the copy, 0: none */
byte got[M];		/* who has answered its pulls in the present session */
byte ses[M];		/* the session: the step, or REFILL */
byte fil[M];		/* the step it has filled last, 0: none */
bool lost[M];		/* it lost its memory and has not refilled */

/* ---- activations ---- */
byte ph[K];		/* phase */
byte av[K];		/* version of its quorums */
byte ep[K];		/* epoch */
byte pm[K];		/* who has answered what is under way */
byte best[K];		/* highest stamp among the promises */
byte val[2*K];		/* state under its stamps: of the write-back and of the write */
byte sent[2*K];		/* versions at which that was sent, a bit each */
byte need[K];		/* what had been answered when the operation began */
bool red[K];		/* it has read */
byte seen;		/* the longest state that was answered */

#define IDLE 0
#define PREPARING 1
#define OPENING 2	/* the write-back is under way */
#define ACTIVE 3
#define WRITING 4
#define READING 5
#define OVER 6

#define REFILL 100

/* Epochs are led by the version; at one version they differ by activation. Two stamps of an epoch: write-back, write. */
#define epoch(a, v)	((v) * K + (a) + 1)
#define stamp(a, w)	(ep[a] * 2 + (w))
#define whose(x)	(((x) / 2 - 1) % K)
#define state(x)	((x) == 0 -> 0 : val[whose(x) * 2 + (x) % 2])
#define now(a)		(sent[2*a+1] != 0 -> val[2*a+1] : val[2*a])	/* what a shows when nothing is under way */

/* ---- who counts ---- */
#define switching(v)	(S[v] != N[v])
#define joins(r, v)	(has(N[v], r) && !has(S[v], r))
#define shrinks(v)	(switching(v) && size(N[v]) < size(S[v]))

#ifdef AMNESIAC_COUNTS
#define holds(r)	true
#else
#define holds(r)	(!lost[r])
#endif

#ifdef FILLED_MARK_REUSED
#define filled(r, v)	(fil[r] != 0)
#else
#define filled(r, v)	(fil[r] == T[v])
#endif
#ifdef RECEIVING_COUNTS
#define received(r, v)	true
#else
#define received(r, v)	filled(r, v)
#endif

/* counts says whether r may answer a request of version v. */
#define counts(r, v)	((has(S[v], r) && holds(r)) || (joins(r, v) && received(r, v)))

#ifdef NO_FENCE
#define current(r, v)	true
#else
#define current(r, v)	(ver[r] <= (v))
#endif

/* ---- quorums of what is under way ---- */
#define inS(a)		size(pm[a] & S[av[a]])
#define inN(a)		size(pm[a] & N[av[a]])
#define majS(a)		(inS(a) >= W(S[av[a]]))
#define majN(a)		(inN(a) >= W(N[av[a]]))

#if defined(PREPARE_BY_R)
#define prepared(a)	(inS(a) >= R(S[av[a]]) && inN(a) >= R(N[av[a]]))
#elif defined(PREPARE_BASE_ALONE)
#define prepared(a)	majS(a)
#elif defined(NEXT_ALONE)
#define prepared(a)	majN(a)
#else
#define prepared(a)	(majS(a) && majN(a))
#endif

#if defined(NEXT_ALONE)
#define committed(a)	majN(a)
#elif defined(WRITE_BASE_ALONE)
#define committed(a)	majS(a)
#elif defined(FIRST_ACK)
#define committed(a)	(pm[a] != 0)
#else
#define committed(a)	(majS(a) && majN(a))
#endif

#if defined(READ_BY_R)
#define confirmed(a)	(inS(a) >= R(S[av[a]]) && inN(a) >= R(N[av[a]]))
#elif defined(READ_BASE_ALONE)
#define confirmed(a)	majS(a)
#elif defined(READ_NEXT_ALONE)
#define confirmed(a)	majN(a)
#elif defined(READ_UNCONFIRMED)
#define confirmed(a)	true
#else
#define confirmed(a)	(majS(a) && majN(a))
#endif

/* ---- a member learns a version: what it held of a key that it is to gain was not kept up to date ---- */
inline learn(r, v) {
	if
	:: ver[r] < v ->
		if
		:: joins(r, v) && T[v] > ver[r] -> st[r] = 0
		:: else
		fi;
		ver[r] = v
	:: else
	fi
}

inline max(p, q) {
	if
	:: p < q -> p = q
	:: else
	fi
}

hidden byte x;		/* the state at hand */

/* check looks at a state that an operation has found. */
inline check(a) {
	assert((x & need[a]) == need[a]);		/* an answered write is missing */
	assert((x & seen) == seen || (x & seen) == x);	/* two owners wrote beside each other */
	need[a] = 0
}

/* answer shows it to a caller. */
inline answer(a) {
	check(a);
	if
	:: (x & seen) == seen -> seen = x
	:: else
	fi
}

/* rest ends an activation that has nothing left to do. Its late messages stay. */
inline rest(a) {
	if
	:: ph[a] == ACTIVE && (!has(WRITERS, a) || sent[2*a+1] != 0) && (!has(READERS, a) || red[a]) ->
		ph[a] = OVER; av[a] = 0; red[a] = false;
		if
		:: sent[2*a] == 0 && sent[2*a+1] == 0 -> ep[a] = 0
		:: else
		fi
	:: else
	fi
}

/* ---- activation ---- */
inline begin(a, v) {
	ph[a] = PREPARING; av[a] = v; ep[a] = epoch(a, v); need[a] = seen
}

#ifdef NO_WRITE_BACK
#define backneeded(a)	false
#else
#define backneeded(a)	(best[a] != 0)
#endif

/* opened adopts the highest state. It is written back before anything is answered, unless there is none. */
inline opened(a) {
	val[2*a] = state(best[a]);
	if
	:: backneeded(a) ->
		ph[a] = OPENING; sent[2*a] = one(av[a])
	:: else ->
		x = val[2*a]; check(a); ph[a] = ACTIVE
	fi;
	best[a] = 0; pm[a] = 0;
	rest(a)
}

inline promise(a, r) {
	learn(r, av[a]);
	prom[r] = ep[a];
	pm[a] = pm[a] | one(r);
	max(best[a], st[r]);
	if
	:: prepared(a) -> opened(a)
	:: else
	fi
}

inline write(a) {
	ph[a] = WRITING; need[a] = seen;
	val[2*a+1] = val[2*a] | one(a);
	sent[2*a+1] = one(av[a])
}

/* acks of two versions are not added up */
#ifdef ACKS_ADDED
#define adds(a, v)	(v < av[a])
#else
#define adds(a, v)	false
#endif

/* accept takes commit w of a, as sent at version v: in place of anything older, and of nothing newer. */
inline accept(a, w, r, v) {
	learn(r, v);
	prom[r] = ep[a]; st[r] = stamp(a, w);
	if
	:: ph[a] == OPENING + 2*w && (av[a] == v || adds(a, v)) -> pm[a] = pm[a] | one(r)
	:: else
	fi;
	if
	:: ph[a] == OPENING + 2*w && committed(a) ->
		x = val[2*a+w];
		if
		:: w == 1 -> answer(a)
		:: else -> check(a)
		fi;
		ph[a] = ACTIVE; pm[a] = 0;
		rest(a)
	:: else
	fi
}

inline read(a) { ph[a] = READING; need[a] = seen; red[a] = true }

inline confirm(a, r) {
	learn(r, av[a]);
	prom[r] = ep[a];
	pm[a] = pm[a] | one(r)
}

inline readdone(a) {
	x = now(a); answer(a);
	ph[a] = ACTIVE; pm[a] = 0;
	rest(a)
}

#ifdef ACKS_ADDED
#define recount(a)	skip
#else
#define recount(a)	pm[a] = 0
#endif
#ifdef PROMISES_ADDED
#define prepareagain(a)	skip
#else
#define prepareagain(a)	best[a] = 0; pm[a] = 0; ep[a] = epoch(a, av[a])
#endif

/* goon takes an activation to a newer placement: what is under way is sent again, and counted from nothing. */
inline goon(a, v) {
	av[a] = v;
	if
	:: ph[a] == PREPARING -> prepareagain(a)
	:: ph[a] == OPENING -> recount(a); sent[2*a] = sent[2*a] | one(v)
	:: ph[a] == WRITING -> recount(a); sent[2*a+1] = sent[2*a+1] | one(v)
	:: ph[a] == READING -> pm[a] = 0
	:: else
	fi
}

/* ---- filling ---- */
#ifdef STAYERS_UNFILLED
#define stays(r, v)	false
#else
#define stays(r, v)	(shrinks(v) && has(N[v], r) && has(S[v], r))
#endif
#define refills(r, v)	(lost[r] && has(S[v], r))
#define session(r, v)	(refills(r, v) -> REFILL : T[v])
#define fills(r, v)	(refills(r, v) || ((joins(r, v) || stays(r, v)) && fil[r] != T[v]))

#if defined(ONE_SOURCE)
#define enough(r, v)	(got[r] != 0)
#elif defined(SOURCES_OF_RANGE)
#define enough(r, v)	(size(got[r]) >= R(S[v]))
#else
#define enough(r, v)	(size(got[r] & S[v]) >= R(S[v]))
#endif

#if defined(REFILLING_SOURCE)
#define source(q, v)	has(S[v], q)
#elif defined(SOURCES_OF_RANGE)
#define source(q, v)	holds(q)
#else
#define source(q, v)	(has(S[v], q) && holds(q))
#endif
/* a source that is ahead answers as long as it is in the same step, or the receiver still has to refill */
#define answers(q, r, v) (current(q, v) || (refills(r, v) -> has(S[ver[q]], q) && refills(r, ver[q]) : T[ver[q]] == T[v] && switching(ver[q])))

#ifdef PULL_LEAVES_FENCE
#define fenced(q, v)	skip
#else
#define fenced(q, v)	learn(q, v)
#endif

/* pull has r ask q at version v. A member that stays counts itself among those that have answered. */
inline pull(r, q, v) {
	learn(r, v);
	if
	:: ses[r] != session(r, v) ->
		ses[r] = session(r, v);
		got[r] = (!refills(r, v) && has(S[v], r) -> one(r) : 0)
	:: else
	fi;
	fenced(q, v);
	got[r] = got[r] | one(q);
#ifdef PROMISES_SKIPPED
	if
	:: st[q] != 0 -> max(prom[r], prom[q])
	:: else
	fi;
#elif !defined(PROMISES_LEFT)
	max(prom[r], prom[q]);
#endif
	max(st[r], st[q]);
	max(prom[r], st[r] / 2);
	if
	:: enough(r, v) ->
		if
		:: refills(r, v) -> lost[r] = false
		:: else -> fil[r] = T[v]; lost[r] = false
		fi;
		got[r] = 0; ses[r] = 0
	:: else
	fi
}

/* ---- the log ---- */
#if M == 4
#define each(f)		(f(0) && f(1) && f(2) && f(3))
#define sum(f)		(f(0) + f(1) + f(2) + f(3))
#else
#define each(f)		(f(0) && f(1) && f(2))
#define sum(f)		(f(0) + f(1) + f(2))
#endif
#define gained(r)	(!joins(r, head) || filled(r, head))
#define compared(r)	(has(N[head], r) && has(S[head], r) && holds(r) && fil[r] == T[head])
#define whole(r)	(has(N[head], r) && holds(r))

#ifdef STAYERS_UNFILLED
#define enoughcompared	true
#else
#define enoughcompared	(!shrinks(head) || sum(compared) >= W(N[head]))
#endif
#ifdef ADVANCE_UNFILLED
#define ready		true
#else
#define ready		(each(gained) && enoughcompared && sum(whole) >= W(N[head]))
#endif

/* place appends a placement. */
inline place(s, n, t) {
	S[head+1] = s; N[head+1] = n; T[head+1] = t;
	head++
}

/* crash takes a member's memory. The log gives the new run a version, and what it needs. */
inline crash(r) {
	crashes++;
	place(S[head], N[head], T[head]);
	lost[r] = has(S[head], r);
	prom[r] = 0; st[r] = 0; got[r] = 0; ses[r] = 0; fil[r] = 0;
	ver[r] = head
}

/* tolerated: fewer are without memory than a write needs members */
#define without(r)	(has(S[head], r) && lost[r])
#define tolerated(r)	(has(S[head] | N[head], r) && !lost[r] && \
	(!has(S[head], r) || (sum(without) + 1 < W(S[head]) && (!has(N[head], r) || size(N[head]) > 1))))

/* A member that is in no set may forget its copy and its promise. */
#ifdef DROP_EARLY
#define leaves(r, v)	(ver[r] <= v && v <= head && !has(N[v], r))
#else
#define leaves(r, v)	(ver[r] <= v && v <= head && !has(N[v] | S[v], r))
#endif

inline drop(r, v) { ver[r] = v; st[r] = 0; prom[r] = 0; got[r] = 0; ses[r] = 0; fil[r] = 0; lost[r] = false }

/* ---- what may happen next: an event is enabled for a choice of activation, write, member, other member, version ---- */
byte a, w, r, q, v;	/* the choice; nothing between two events */

#define inSets(a, r)	has(S[av[a]] | N[av[a]], r)
#define asked(a, r)	(inSets(a, r) && !has(pm[a], r) && current(r, av[a]) && counts(r, av[a]) && prom[r] <= ep[a])

#ifdef OLDER_REPLACES
#define newer(a, w, r)	(st[r] != stamp(a, w))
#else
#define newer(a, w, r)	(st[r] < stamp(a, w))
#endif
#ifdef LOWER_EPOCH
#define bound(a, r)	true
#else
#define bound(a, r)	(prom[r] <= ep[a])
#endif
#define unheard(a, w, r, v) (st[r] == stamp(a, w) && ph[a] == OPENING + 2*w && av[a] == v && !has(pm[a], r))

#define canBegin(a, v)	(ph[a] == IDLE && (v) <= head)
#define canPromise(a, r) (ph[a] == PREPARING && asked(a, r))
#define canWrite(a)	(ph[a] == ACTIVE && has(WRITERS, a) && sent[2*a+1] == 0)
#define canAccept(a, w, r, v) (has(sent[2*a+w], v) && has(S[v] | N[v], r) && current(r, v) && bound(a, r) && \
	(newer(a, w, r) || unheard(a, w, r, v)) && counts(r, v))
#define canRead(a)	(ph[a] == ACTIVE && has(READERS, a) && !red[a])
#define canConfirm(a, r) (ph[a] == READING && asked(a, r))
#define canAnswer(a)	(ph[a] == READING && confirmed(a))
#define canGoOn(a, v)	(ph[a] != IDLE && ph[a] != OVER && av[a] < (v) && (v) <= head)
#define canPull(r, q, v) (ver[r] <= (v) && (v) <= head && fills(r, v) && source(q, v) && answers(q, r, v) && \
	!(ver[r] == (v) && ses[r] == session(r, v) && has(got[r], q)))

#ifdef DROPS
#define canDrop(r, v)	((st[r] != 0 || prom[r] != 0) && leaves(r, v))
#else
#define canDrop(r, v)	false
#endif
#define canStep(to)	((to) != 0 && !switching(head) && \
	((S[head] == R0 && (to) == R1) || (S[head] == R1 && (to) == R2)))
#define canAdvance	(switching(head) && ready)
#ifdef ABORTS
#define canAbort	switching(head)
#else
#define canAbort	false
#endif
#if defined(RETARGETS) || defined(RETARGET_FROM_NEXT)
#define canRetarget	(switching(head) && N[head] == R1 && R2 != 0)
#else
#define canRetarget	false
#endif
#ifdef RETARGET_FROM_NEXT
#define from		N[head]
#else
#define from		S[head]
#endif
#define canCrash(r)	(crashes < CRASHES && head + 1 < V && tolerated(r))

/* All choices, one option each: one that is not enabled costs a look at its guard and no state. */
#define beginV(a, v)	:: d_step { canBegin(a, v) -> begin(a, v) }
#define goOnV(a, v)	:: d_step { canGoOn(a, v) -> goon(a, v) }
#define promiseR(a, r)	:: canPromise(a, r) -> pick(a, 0, r, 0, 0)
#define confirmR(a, r)	:: d_step { canConfirm(a, r) -> confirm(a, r) }
#define acceptV(a, w, r, v) :: canAccept(a, w, r, v) -> pick(a, w, r, 0, v)
#define pullV(r, q, v)	:: canPull(r, q, v) -> pick(0, 0, r, q, v)
#define dropV(r, v)	:: d_step { canDrop(r, v) -> drop(r, v) }
#define crashR(r)	:: d_step { canCrash(r) -> crash(r) }

#define beginA(a)	eachV2(beginV, a)
#define goOnA(a)	eachV2(goOnV, a)
#define promiseA(a)	eachR2(promiseR, a)
#define confirmA(a)	eachR2(confirmR, a)
#define acceptR(a, w, r) eachV4(acceptV, a, w, r)
#define acceptA(a)	eachR3(acceptR, a, 0) eachR3(acceptR, a, 1)
#define writeA(a)	:: d_step { canWrite(a) -> write(a) }
#define readA(a)	:: d_step { canRead(a) -> read(a) }
#define answerA(a)	:: d_step { canAnswer(a) -> readdone(a) }
#define dropR(r)	eachV2(dropV, r)
#define pullQ(r, q)	eachV3(pullV, r, q)

#if K == 1
#define eachA(f)	f(0)
#elif K == 2
#define eachA(f)	f(0) f(1)
#else
#define eachA(f)	f(0) f(1) f(2)
#endif

#if M == 3
#define eachR(f)	f(0) f(1) f(2)
#define eachR2(f, a)	f(a, 0) f(a, 1) f(a, 2)
#define eachR3(f, a, w)	f(a, w, 0) f(a, w, 1) f(a, w, 2)
#define eachPair(f)	f(0,1) f(0,2) f(1,0) f(1,2) f(2,0) f(2,1)
#else
#define eachR(f)	f(0) f(1) f(2) f(3)
#define eachR2(f, a)	f(a, 0) f(a, 1) f(a, 2) f(a, 3)
#define eachR3(f, a, w)	f(a, w, 0) f(a, w, 1) f(a, w, 2) f(a, w, 3)
#define eachPair(f)	f(0,1) f(0,2) f(0,3) f(1,0) f(1,2) f(1,3) f(2,0) f(2,1) f(2,3) f(3,0) f(3,1) f(3,2)
#endif

#if V <= 3
#define eachV2(f, a)	f(a, 0) f(a, 1) f(a, 2)
#define eachV3(f, a, b)	f(a, b, 0) f(a, b, 1) f(a, b, 2)
#define eachV4(f, a, b, c) f(a, b, c, 0) f(a, b, c, 1) f(a, b, c, 2)
#elif V <= 5
#define eachV2(f, a)	f(a, 0) f(a, 1) f(a, 2) f(a, 3) f(a, 4)
#define eachV3(f, a, b)	f(a, b, 0) f(a, b, 1) f(a, b, 2) f(a, b, 3) f(a, b, 4)
#define eachV4(f, a, b, c) f(a, b, c, 0) f(a, b, c, 1) f(a, b, c, 2) f(a, b, c, 3) f(a, b, c, 4)
#else
#define eachV2(f, a)	f(a, 0) f(a, 1) f(a, 2) f(a, 3) f(a, 4) f(a, 5) f(a, 6)
#define eachV3(f, a, b)	f(a, b, 0) f(a, b, 1) f(a, b, 2) f(a, b, 3) f(a, b, 4) f(a, b, 5) f(a, b, 6)
#define eachV4(f, a, b, c) f(a, b, c, 0) f(a, b, c, 1) f(a, b, c, 2) f(a, b, c, 3) f(a, b, c, 4) f(a, b, c, 5) f(a, b, c, 6)
#endif

inline pick(pa, pw, pr, pq, pv) { d_step { a = pa; w = pw; r = pr; q = pq; v = pv } }
inline unpick() { a = 0; w = 0; r = 0; q = 0; v = 0 }

init {
	d_step { S[0] = R0; N[0] = R0 }
end:	do
	/* owners */
	eachA(beginA)
	eachA(goOnA)
	eachA(writeA)
	eachA(readA)
	eachA(confirmA)
	eachA(answerA)
	:: atomic {
		if
		eachA(promiseA)
		fi;
		d_step { promise(a, r); unpick() }
	   }
	/* replicas */
	:: atomic {
		if
		eachA(acceptA)
		fi;
		d_step { accept(a, w, r, v); unpick() }
	   }
	:: atomic {
		if
		eachPair(pullQ)
		fi;
		d_step { pull(r, q, v); unpick() }
	   }
	eachR(dropR)
	/* the log */
	:: d_step { head + 1 < V && canStep(R1) -> place(S[head], R1, head + 1) }
	:: d_step { head + 1 < V && canStep(R2) -> place(S[head], R2, head + 1) }
	:: d_step { head + 1 < V && canAdvance -> place(N[head], N[head], 0) }
	:: d_step { head + 1 < V && canAbort -> place(S[head], S[head], 0) }
	:: d_step { head + 1 < V && canRetarget -> place(from, R2, head + 1) }
	eachR(crashR)
	od
}
