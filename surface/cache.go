package surface

import "container/list"

// defaultCache is what a View keeps of derived messages, in bytes of JSON.
const defaultCache = 4 << 20

// messageCache keeps the messages that were asked for last. An entry is right
// as long as its node has been changed by the same number of decisions.
type messageCache struct {
	limit, size int
	order       list.List // of cached, the one used last in front
	bySeq       map[int64]*list.Element
}

type cached struct {
	m         Message
	decisions int
}

func (c *messageCache) get(seq int64, decisions int) (Message, bool) {
	e, ok := c.bySeq[seq]
	if !ok {
		return Message{}, false
	}
	if got := e.Value.(cached); got.decisions == decisions {
		c.order.MoveToFront(e)
		return got.m, true
	}
	c.drop(e)
	return Message{}, false
}

func (c *messageCache) put(m Message, decisions int) {
	if len(m.Message) > c.limit {
		return
	}
	if c.bySeq == nil {
		c.bySeq = map[int64]*list.Element{}
	}
	c.bySeq[m.Seq] = c.order.PushFront(cached{m, decisions})
	c.size += len(m.Message)
	c.shrink()
}

func (c *messageCache) shrink() {
	for c.size > c.limit {
		c.drop(c.order.Back())
	}
}

func (c *messageCache) drop(e *list.Element) {
	m := c.order.Remove(e).(cached).m
	delete(c.bySeq, m.Seq)
	c.size -= len(m.Message)
}
