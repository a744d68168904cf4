#include <idem/op.h>

#include "base/memory.h"

static void page_free(struct idem_kept_record *page, size_t count)
{
    /* A sweep counts too, and has no page. */
    if (page == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        idem_free(page[i].memory);
    idem_free(page);
}

void idem_op_deinit(struct idem_op *op)
{
    page_free(op->out.page, op->out.count);
    idem_free(op->out.found.memory);
    idem_free(op->out.entries);
    idem_free(op->out.damaged_ids);
    idem_free(op->out.memory);
    op->result = IDEM_RESULT_NONE;
    memset(&op->out, 0, sizeof op->out);
}
