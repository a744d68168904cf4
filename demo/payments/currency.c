/* The currencies of ISO 4217 by the digits after their decimal point (its column "minor unit"). */
#include "money.h"

struct currency_group {
    unsigned decimals;
    const char *codes; /* three letters and a blank each */
};

static const struct currency_group groups[] = {
    {2, "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN "
        "BZD CAD CDF CHF CNY COP CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS "
        "GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR "
        "LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD "
        "PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN "
        "SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VES WST XCD YER ZAR ZMW "},
    {0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF "},
    {3, "BHD IQD JOD KWD LYD OMR TND "},
    {4, "CLF UYW "},
};

#define CODE_SIZE   3
#define CODE_STRIDE 4

bool currency_find(struct idem_bytes code, struct currency *ret_currency)
{
    if (code.size != CODE_SIZE)
        return false;
    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
        for (const char *at = groups[g].codes; *at; at += CODE_STRIDE) {
            if (memcmp(at, code.data, CODE_SIZE) != 0)
                continue;
            *ret_currency = (struct currency){.decimals = groups[g].decimals};
            memcpy(ret_currency->code, at, CODE_SIZE);
            return true;
        }
    }
    return false;
}
