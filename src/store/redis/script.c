#include "store/redis/redis_store.h"
#include "store/redis/script_text.h"

const char *const idem_redis_script_texts[IDEM_REDIS_SCRIPT_COUNT] = {
    [IDEM_REDIS_SCRIPT_CLAIM] = idem_redis_script_claim,
    [IDEM_REDIS_SCRIPT_RENEW] = idem_redis_script_renew,
    [IDEM_REDIS_SCRIPT_COMPLETE] = idem_redis_script_complete,
    [IDEM_REDIS_SCRIPT_FAIL] = idem_redis_script_fail,
    [IDEM_REDIS_SCRIPT_ABANDON] = idem_redis_script_abandon,
    [IDEM_REDIS_SCRIPT_GET] = idem_redis_script_get,
    [IDEM_REDIS_SCRIPT_RESOLVE] = idem_redis_script_resolve,
    [IDEM_REDIS_SCRIPT_FORGET] = idem_redis_script_forget,
    [IDEM_REDIS_SCRIPT_PUT] = idem_redis_script_put,
    [IDEM_REDIS_SCRIPT_AUDIT] = idem_redis_script_audit,
    [IDEM_REDIS_SCRIPT_AUDIT_ADD] = idem_redis_script_audit_add,
    [IDEM_REDIS_SCRIPT_SWEEP] = idem_redis_script_sweep,
    [IDEM_REDIS_SCRIPT_UNDO] = idem_redis_script_undo,
    [IDEM_REDIS_SCRIPT_MARK] = idem_redis_script_mark,
};
