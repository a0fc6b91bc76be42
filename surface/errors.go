package surface

import (
	"strconv"

	"github.com/otel-bridge/otel-bridge/session"
)

// The rules of the surface, in the order in which an event is checked against
// them. An event that breaks one is refused with a *session.InvariantError that
// has the code. The rules that need no surface have codes of package session:
// seq-gap, surface-op-forbidden, surface-op-missing, surface-op-malformed,
// replace-not-earlier and the sources-... ones; they are checked first.
const (
	// CodeDeveloperHeader: a developer/message has a headerSeq without adding
	// tools, adds tools without one, or names what is no earlier request/header.
	CodeDeveloperHeader = session.CodeDeveloperHeader
	// CodeDeveloperTool: a tool that a developer/message adds is not declared
	// exactly once, in full, in the request/header it names.
	CodeDeveloperTool session.Code = "developer-tool"
	// CodeProjectionMissing: the event changes messages in a way for which no
	// Projection is installed.
	CodeProjectionMissing session.Code = "projection-missing"
	// CodeReplaceNotCurrent: a replace names an event that is not a current node.
	CodeReplaceNotCurrent session.Code = "replace-not-current"
	// CodeReplaceOrder: a replace's start stands behind its end.
	CodeReplaceOrder session.Code = "replace-order"
	// CodeReplaceUncited: sourceEventSeqs lacks a node that the replace shadows.
	CodeReplaceUncited session.Code = "replace-uncited"
	// CodeRewriteSpan: a tool/result replaces something else than one current
	// tool/result.
	CodeRewriteSpan session.Code = "rewrite-span"
	// CodeRewriteContent: a tool/result rewrite changes more than the content.
	CodeRewriteContent session.Code = "rewrite-content"
	// CodeHeadProtected: the system prompt at the head is replaced by something
	// else than a system/message over exactly it.
	CodeHeadProtected session.Code = "head-protected"

	// CodeOffloadData: the payload of an image/offload is not
	// {"targets":[{"seq","imageIndexes"}]} with at least one of each.
	CodeOffloadData session.Code = "offload-data"
	// CodeOffloadDuplicate: two targets name one node.
	CodeOffloadDuplicate session.Code = "offload-duplicate"
	// CodeOffloadNotCurrent: a target is not a current node.
	CodeOffloadNotCurrent session.Code = "offload-not-current"
	// CodeOffloadType: a target is neither a user/message nor a tool/result.
	CodeOffloadType session.Code = "offload-type"
	// CodeOffloadIndexes: image indexes are not strictly increasing counts.
	CodeOffloadIndexes session.Code = "offload-indexes"
	// CodeOffloadAgain: an image is offloaded a second time.
	CodeOffloadAgain session.Code = "offload-again"
	// CodeOffloadContent: the target's content cannot be walked for images.
	CodeOffloadContent session.Code = "offload-content"
	// CodeOffloadMissing: the target has no image at an index.
	CodeOffloadMissing session.Code = "offload-missing"

	// CodeToolUpdate: a request/tool-update does not fit the headers and the
	// messages before it. Only Requests refuses with it.
	CodeToolUpdate session.Code = "tool-update"
)

// refuse makes the error of an event that breaks a rule. detail quotes numbers
// and event types only.
func refuse(ev *session.Event, c session.Code, detail string) error {
	return &session.InvariantError{Code: c, Seq: ev.Seq, Type: ev.Type, Detail: detail}
}

func spanDetail(op *session.SurfaceOp, what string) string {
	return "replace " + strconv.FormatInt(op.Start, 10) + ".." + strconv.FormatInt(op.End, 10) + ": " + what
}

func sourceDetail(seq int64, what string) string {
	return "source " + strconv.FormatInt(seq, 10) + " " + what
}

func targetDetail(seq int64, what string) string {
	return "target " + strconv.FormatInt(seq, 10) + " " + what
}
