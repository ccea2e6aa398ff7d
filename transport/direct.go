package transport

// directBytes bounds what a sender writes itself: more is worth the switch to the writer.
const directBytes = 16 << 10

// writeNow writes the queue in the sender's goroutine, without a switch to the writer, which sleeps. It waits for nothing: what
// the socket does not take is left to the writer, and so is what others have queued meanwhile, so that frames go out in the
// order in which they were queued. The caller holds mu, and has taken sleep.
func (p *pipe) writeNow() {
	write, data := p.direct, p.queue
	p.queue, p.spare, p.lent = p.spare[:0], nil, true
	p.mu.Unlock()
	n := write(data)
	p.mu.Lock()
	p.lent = false
	if n < len(data) {
		p.rest = data[n:]
	} else {
		p.spare = data[:0]
	}
	if p.awaited || p.rest != nil || len(p.queue) > 0 {
		p.awaited = false
		p.wake <- struct{}{} // capacity 1, and only who has taken sleep sends
		return
	}
	p.sleep = true
}

// takeRest gives what a sender could not write: it ends in the middle of a frame, so it goes before all else.
func (p *pipe) takeRest() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.rest
	p.rest = nil
	return rest
}
